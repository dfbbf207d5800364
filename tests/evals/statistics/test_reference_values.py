"""Public boards and real logs, recomputed from their own files."""

import csv
import gzip
import json
import math

import pytest

from evals.statistics.denominators import pass_rates
from evals.statistics.estimate import Kind
from evals.statistics.means import clustered_standard_error, estimate_mean, standard_error
from evals.statistics.paired import mcnemar_exact, p_value, paired_difference
from evals.statistics.pass_at import pass_at_k, pass_hat_k
from evals.statistics.power import minimal_detectable_effect
from evals.statistics.preferences import preference_rate
from evals.statistics.proportions import wilson
from evals.statistics.repeats import over_items, spread_of_runs


@pytest.fixture(scope="module")
def expected(samples):
    return json.loads(samples("EXPECTED.json").read_text())


# --- AlpacaEval: raw win rates ---

MODELS = (
    "gpt4_gamed", "claude-2", "FuseChat-Llama-3.1-8B-Instruct", "vicuna-13b-v1.5", "NullModel", "gpt4_0613_concise",
    "gpt-3.5-turbo-1106_verbose",
)  # fmt: skip


@pytest.fixture(scope="module")
def preferences(samples):
    """Model -> preferences for it, in [0, 1]."""
    found: dict[str, list[float]] = {}
    with gzip.open(samples("alpaca_eval") / "preferences_10models.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["model"], []).append(float(row["preference"]) - 1)
    return found


@pytest.mark.parametrize("model", MODELS)
def test_raw_win_rates_of_alpaca_eval_to_1e_9(preferences, expected, model):
    found, target = preference_rate(preferences[model]), expected["alpaca_eval"][model]
    assert 100 * found.rate.value == pytest.approx(target["win_rate"], abs=1e-9)
    assert 100 * found.rate.se == pytest.approx(target["standard_error"], abs=1e-9)
    assert (found.wins, found.ties, found.rate.n) == (target["n_wins"], target["n_draws"], target["n_total"])
    assert 100 * found.discrete.value == pytest.approx(target["discrete_win_rate"], abs=1e-9)


def test_every_model_of_the_file_has_the_rate_and_error_of_the_board(samples, preferences):
    with (samples("alpaca_eval") / "leaderboard_weighted_gpt4_turbo.csv").open() as file:
        board = {row[""]: row for row in csv.DictReader(file)}
    assert len(preferences) == 10
    for model, values in preferences.items():
        found, row = preference_rate(values), board[model]
        assert 100 * found.rate.value == pytest.approx(float(row["win_rate"]), abs=1e-9)
        assert 100 * found.rate.se == pytest.approx(float(row["standard_error"]), abs=1e-9)
        assert (found.wins, found.losses, found.ties) == tuple(
            int(float(row[name])) for name in ("n_wins", "n_wins_base", "n_draws")
        )


def test_text_davinci_001_rests_on_803_preferences(preferences):
    found = preference_rate(preferences["text_davinci_001"]).rate
    assert (found.n, 100 * found.value) == (803, pytest.approx(2.764005, abs=1e-6))


# --- Terminal-Bench: 13 agents, 80 tasks, 5 runs ---


@pytest.fixture(scope="module")
def trials(samples):
    """Agent -> task -> outcomes of its runs ("1", "0", or "n" without a verdict)."""
    found: dict[str, dict[str, str]] = {}
    with (samples("terminal-bench") / "matrix_13agents_80tasks_5runs.csv").open() as file:
        for row in csv.DictReader(file):
            found.setdefault(row["agent"], {})[row["task"]] = row["run_outcomes"]
    return found


def strict(outcomes):
    """No verdict counts as unresolved, as the board does."""
    return [float(one == "1") for one in outcomes]


def test_all_of_terminal_bench_gives_the_reference_values(trials, expected):
    assert trials.keys() == expected["terminal_bench"].keys()
    for agent, target in expected["terminal_bench"].items():
        tasks = trials[agent]
        flat = [(task, score) for task, outcomes in tasks.items() for score in strict(outcomes)]
        scores, labels = [score for _, score in flat], [task for task, _ in flat]
        counts = [(outcomes.count("1"), len(outcomes)) for outcomes in tasks.values()]
        found = over_items({task: strict(outcomes) for task, outcomes in tasks.items()})
        without_factor = clustered_standard_error(scores, labels, small_sample=False)
        assert (len(scores), sum(outcomes.count("n") for outcomes in tasks.values())) == (
            target["n_trials"], target["n_null"],
        )  # fmt: skip
        assert (found.value, found.se) == (
            pytest.approx(target["accuracy"], abs=1e-12), pytest.approx(target["se_cluster_task_CR"], abs=1e-12),
        )  # fmt: skip
        assert standard_error(scores) == pytest.approx(target["se_naive"], abs=1e-12)
        assert without_factor == pytest.approx(target["se_cluster_task"], abs=1e-12)
        runs = [[strict(outcomes)[run] for outcomes in tasks.values()] for run in range(5)]
        assert spread_of_runs(runs) == pytest.approx(target["se_over_runs"], abs=1e-12)
        for k, value in target["pass_at"].items():
            assert pass_at_k(counts, int(k)).value == pytest.approx(value, abs=1e-12)
        assert pass_hat_k(counts, 5).value == pytest.approx(target["pass_hat_5"], abs=1e-12)


OPUS, SONNET, GPT_5 = (
    "20250923_droid_claude-4-1-opus", "20250923_droid_claude-4-sonnet", "20250924_droid_gpt-5",
)  # fmt: skip


def per_task(trials, agent):
    return {task: sum(strict(outcomes)) / len(outcomes) for task, outcomes in trials[agent].items()}


def test_the_paired_verdict_of_terminal_bench_where_the_unpaired_test_sees_nothing(trials):
    found = paired_difference(per_task(trials, OPUS), per_task(trials, SONNET), confidence=0.975)
    assert (100 * found.mean, 100 * found.se) == (pytest.approx(8.25), pytest.approx(3.0542, abs=1e-4))
    assert (found.num_pairs, found.better, found.worse, found.equal) == (80, 23, 10, 47)
    assert found.mean / found.se == pytest.approx(2.7012, abs=1e-4)
    assert math.erfc(2.7012 / math.sqrt(2)) == pytest.approx(0.00691, abs=1e-5)
    assert p_value(found) == pytest.approx(0.00845, abs=1e-5)
    assert found.correlation == pytest.approx(0.8117, abs=1e-4)
    assert 100 * found.unpaired_se == pytest.approx(7.038, abs=1e-3)
    assert found.mean / found.unpaired_se == pytest.approx(1.17, abs=0.005)
    drawn = found.estimate()
    assert drawn.low > 0 and (drawn.interval, drawn.n, drawn.coverage) == (Kind.T, 80, 1.0)


def test_two_points_between_gpt_5_and_sonnet_show_nothing(trials):
    found = paired_difference(per_task(trials, GPT_5), per_task(trials, SONNET))
    assert (100 * found.mean, 100 * found.se) == (pytest.approx(2.0), pytest.approx(3.2724, abs=1e-4))
    assert math.erfc(found.mean / found.se / math.sqrt(2)) == pytest.approx(0.541, abs=1e-3)


@pytest.mark.parametrize(("agent", "better", "worse", "p"), [(OPUS, 10, 5, 0.30176), (GPT_5, 5, 9, 0.42395)])
def test_one_run_of_each_is_not_enough(trials, agent, better, worse, p):
    def first(name):
        return {task: strict(outcomes)[0] for task, outcomes in trials[name].items()}

    found = paired_difference(first(agent), first(SONNET))
    assert (found.better, found.worse) == (better, worse)
    assert mcnemar_exact(found.better, found.worse) == pytest.approx(p, abs=1e-5)


def test_eighty_tasks_can_see_nine_points(trials):
    differences = [
        a - b for a, b in zip(per_task(trials, OPUS).values(), per_task(trials, SONNET).values(), strict=True)
    ]
    sd = standard_error(differences) * math.sqrt(80)
    assert 100 * minimal_detectable_effect(sd=0.2927, n=80) == pytest.approx(9.17, abs=0.005)
    assert 100 * minimal_detectable_effect(sd=sd, n=80) == pytest.approx(2.8016 * 3.0542, abs=0.01)


def test_trials_without_a_verdict_are_told_beside_the_accuracy(trials):
    outcomes = "".join(trials["20250902_orchestrator_claude-4-sonnet"].values())
    found = pass_rates(
        passed=outcomes.count("1"), with_verdict=len(outcomes) - outcomes.count("n"), asked=len(outcomes)
    )
    assert (found.strict.value, found.num_without_verdict) == (0.36, 29)
    assert found.warning == "7 % of trials have no verdict"


# --- lm-evaluation-harness, Inspect, HELM ---


def hits(right, n):
    return estimate_mean([1.0] * right + [0.0] * (n - right))


@pytest.mark.parametrize(
    ("right", "n", "score", "se", "within"),
    [
        (2, 5000, 0.0004, 0.0002828144211304471, 1e-15),
        (14, 307, 0.045603, 0.011926, 5e-7),
        (2, 123, 0.016260, 0.011450, 5e-7),
        (1, 6, 0.16667, 0.16667, 5e-6),
        (8, 10, 0.8, 0.133333, 5e-7),
        (28, 79, 0.3544304, 0.0541614, 5e-8),
    ],
)
def test_errors_of_published_runs(right, n, score, se, within):
    found = hits(right, n)
    assert (found.value, found.se) == (pytest.approx(score, abs=5e-6), pytest.approx(se, abs=within))


def test_row_27_one_sample_has_no_error_but_a_wide_interval():
    # Inspect says 0, lm-eval "N/A"; Wilson of 1 / 1 is [.2065, 1]
    assert hits(1, 1).se is None
    share = wilson(1, 1).estimate()
    assert (share.value, share.low, share.high) == (1.0, pytest.approx(0.2065, abs=1e-4), 1.0)


def test_row_9_one_row_per_filter_counts_each_item_once_per_filter(samples):
    # 6 docs x 2 filters are 12 lines; split at "\n" only (row 10)
    [path] = (samples("lm_eval")).glob("samples_mini_gen_*.jsonl")
    rows = [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
    by_filter: dict[str, list[float]] = {}
    for row in rows:
        by_filter.setdefault(row["filter"], []).append(float(row["exact_match"]))
    assert {name: estimate_mean(values).n for name, values in by_filter.items()} == dict.fromkeys(by_filter, 6)


def test_row_4_two_samples_of_one_id_are_both_counted():
    assert estimate_mean([1.0, 0.0]).value == 0.5
    assert over_items({"a": [1.0, 0.0]}).value == 0.5


@pytest.mark.parametrize(
    ("run", "metric", "split", "value", "n"),
    [
        ("commonsense-dataset_hellaswag", "exact_match", None, 0.3, 10),
        ("mmlu-subject_philosophy", "exact_match", "test", 1 / 9, 9),
    ],
)
def test_helms_means_come_with_the_n_of_their_instances(samples, run, metric, split, value, n):
    instances = json.loads((samples("helm") / run / "per_instance_stats.json").read_text())
    scores = [
        stat["mean"]
        for instance in instances
        for stat in instance["stats"]
        if stat["name"]["name"] == metric
        and split in (None, stat["name"]["split"])
        and "perturbation" not in stat["name"]
    ]
    found = estimate_mean(scores)
    assert (found.value, found.n) == (pytest.approx(value), n)


def test_paired_unit_vector(expected):
    vector = expected["unit_vectors"]["paired"]
    found = paired_difference(
        {str(place): 1.0 if d > 0 else 0.0 for place, d in enumerate(vector["d"])},
        {str(place): 1.0 if d < 0 else 0.0 for place, d in enumerate(vector["d"])},
    )
    assert (found.mean, found.se) == (pytest.approx(vector["mean"]), pytest.approx(vector["se"]))
    assert mcnemar_exact(found.better, found.worse) == vector["sign_exact_p"]
