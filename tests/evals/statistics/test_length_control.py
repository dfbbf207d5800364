import csv
import gzip
import json

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.special import expit

from evals.statistics.length_control import Weights, apply_weights, fit, fit_length_only

# Models whose board value is made of fewer instructions than the 805 with a known difficulty, or by another version.
NOT_REPRODUCED = {
    "gpt35_turbo_instruct", "llama-2-70b-chat-hf", "minotaur-13b", "platolm-7b", "text_davinci_001",
    "alpaca-7b_verbose", "alpaca-7b_concise", "phi-2", "dbrx-instruct", "NullModel",
}  # fmt: skip


@pytest.fixture(scope="module")
def difficulty(samples):
    with (samples("alpaca_eval") / "instruction_difficulty_recovered.csv").open() as file:
        return {row["sha1_12"]: float(row["difficulty"]) for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def board(samples):
    with (samples("alpaca_eval") / "leaderboard_weighted_gpt4_turbo.csv").open() as file:
        return {row[""]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def published(samples, board, difficulty):
    """Model -> (its board row, the rate that its published weights give)."""
    with (samples("alpaca_eval") / "lc_weights_length_controlled_v1.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if board.get(row[""], {}).get("length_controlled_winrate")]
    return {
        row[""]: (
            board[row[""]],
            apply_weights(
                Weights(
                    model=float(row["not_gamed_baseline.astype(float)"]),
                    length=float(row["np.tanh(std_delta_len)"]),
                    difficulty=float(row["instruction_difficulty"]),
                ),
                list(difficulty.values()),
            ),
        )
        for row in rows
    }


def test_published_weights_give_189_of_199_published_rates(published):
    wrong = {
        name
        for name, (row, found) in published.items()
        if abs(100 * found.rate.value - float(row["length_controlled_winrate"])) >= 1e-6
    }
    assert (len(published), len(published) - len(wrong)) == (199, 189)
    assert wrong == NOT_REPRODUCED


def test_published_weights_give_36_of_37_published_errors(published):
    wrong = {
        name
        for name, (row, found) in published.items()
        if row["lc_standard_error"] and abs(100 * found.rate.se - float(row["lc_standard_error"])) >= 1e-6
    }
    assert sum(bool(row["lc_standard_error"]) for row, _ in published.values()) == 37
    assert wrong == {"NullModel"}


@pytest.mark.parametrize(
    ("model", "rate", "se"),
    [
        ("blendaxai-gm-l6-vo31", 76.919812, 0.572537),
        ("Shopee-SlimMoA-v1", 77.451543, 0.430175),
        ("vicuna-13b-v1.5", 10.484438, None),
        ("vicuna-7b-v1.5", 7.616893, None),
    ],
)
def test_examples_of_length_controlled_rates(published, model, rate, se):
    found = published[model][1]
    assert 100 * found.rate.value == pytest.approx(rate, abs=1e-6)
    assert se is None or 100 * found.rate.se == pytest.approx(se, abs=1e-6)
    assert (found.label, found.rate.n) == ("LC (published weights)", 805)


@pytest.fixture(scope="module")
def preferences(samples):
    with gzip.open(samples("alpaca_eval") / "preferences_10models.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    return {model: [row for row in rows if row["model"] == model] for model in {row["model"] for row in rows}}


@pytest.mark.parametrize(
    "model",
    [
        "gpt4_gamed", "claude-2", "FuseChat-Llama-3.1-8B-Instruct", "vicuna-13b-v1.5", "NullModel",
        "gpt4_0613_concise", "gpt-3.5-turbo-1106_verbose",
    ],
)  # fmt: skip
def test_a_fit_without_regulariser_gives_the_reference_values(samples, preferences, difficulty, model):
    expected = json.loads(samples("EXPECTED.json").read_text())["alpaca_eval"][model]
    rows = preferences[model]
    found = fit(
        [float(row["preference"]) - 1 for row in rows],
        length_baseline=[int(row["len_1"]) for row in rows],
        length_model=[int(row["len_2"]) for row in rows],
        difficulty=[difficulty[row["sha1_12"]] for row in rows],
    )
    assert found.label == "LC (no regulariser)"
    assert 100 * found.rate.value == pytest.approx(expected["noreg_mle_lc"], abs=1e-3)
    weights = [found.weights.length, found.weights.difficulty, found.weights.model]
    assert weights == pytest.approx(expected["noreg_w"], abs=1e-3)


@pytest.mark.parametrize(("model", "rate"), [("FuseChat-Gemma-2-9B-Instruct", 70.117), ("claude-2", 27.013)])
def test_a_fit_is_another_number_than_the_board(board, preferences, difficulty, model, rate):
    rows = preferences[model]
    found = fit(
        [float(row["preference"]) - 1 for row in rows],
        length_baseline=[int(row["len_1"]) for row in rows],
        length_model=[int(row["len_2"]) for row in rows],
        difficulty=[difficulty[row["sha1_12"]] for row in rows],
    )
    assert 100 * found.rate.value == pytest.approx(rate, abs=1e-3)
    assert abs(100 * found.rate.value - float(board[model]["length_controlled_winrate"])) > 0.05


def test_the_fit_equals_statsmodels():
    rng = np.random.default_rng(6)
    baseline, model, hard = rng.integers(50, 900, 300), rng.integers(50, 900, 300), rng.normal(size=300)
    gap = (baseline - model) / (baseline - model).std(ddof=1)
    won = (rng.random(300) < expit(0.3 - 0.8 * np.tanh(gap) + 0.5 * hard)).astype(float)
    oracle = sm.Logit(won, np.column_stack([np.ones(300), np.tanh(gap), hard])).fit(disp=0)
    found = fit(won.tolist(), length_baseline=baseline, length_model=model, difficulty=hard.tolist()).weights
    assert [found.model, found.length, found.difficulty] == pytest.approx(oracle.params.tolist(), abs=1e-6)


def fitted(preferences, gaps, difficulty=(0.1, -0.4, 0.3, 0.8)):
    lengths = [100 + gap for gap in gaps]
    return fit(preferences, length_baseline=lengths, length_model=[100] * len(gaps), difficulty=difficulty)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (fitted([1, 0, 1, 0], [5, 5, 5, 5]), "by the same length"),
        (fitted([1, 1, 1, 1], [5, -5, 9, 1]), "one side is always preferred"),
        (fitted([1, 0, 1, 0], [5, -5, 9, 1], [0.0, 0.0, 0.0, 0.0]), "cannot be told apart"),
    ],
)
def test_what_cannot_be_fitted_says_why(found, why):
    assert (found.rate.value, found.weights) == (None, None)
    assert why in found.rate.undefined


@pytest.mark.parametrize(
    ("preferences", "why"), [([1, 0], "2 preferences, 4 lengths"), ([1, 2, 1, 1], r"lie in \[0, 1\]")]
)
def test_columns_that_do_not_fit_are_refused(preferences, why):
    with pytest.raises(ValueError, match=why):
        fitted(preferences, [5, -5, 9, 1])


def test_of_the_length_alone_equals_a_clustered_logistic_fit():
    rng = np.random.default_rng(3)
    baseline, model = rng.integers(50, 500, 300), rng.integers(50, 500, 300)
    preference, clusters = rng.random(300), rng.integers(0, 40, 300)
    found = fit_length_only(preference, length_baseline=baseline, length_model=model, clusters=clusters.tolist())
    gap = (baseline - model).astype(float)
    design = np.column_stack([np.ones(300), np.tanh(gap / gap.std(ddof=1))])
    oracle = sm.GLM(preference, design, family=sm.families.Binomial()).fit(
        cov_type="cluster", cov_kwds={"groups": clusters, "use_correction": False}
    )
    error = oracle.bse[0] * np.sqrt(40 / 39)
    assert (found.weights.model, found.weights.length) == pytest.approx(tuple(oracle.params), abs=1e-8)
    assert found.rate.low == pytest.approx(expit(oracle.params[0] - 1.959964 * error), abs=1e-6)
    assert (found.rate.interval, found.rate.num_clusters, found.label) == ("sandwich", 40, "LC (length only)")


def test_a_judge_that_only_counts_words_prefers_nobody_at_equal_length():
    # the longer answer wins 3 of 4, the model is longer in 8 of 12: raw .5833, at equal length .5 by symmetry
    longer = [True] * 8 + [False] * 4
    won = [True, True, True, False] * 2 + [False, False, False, True]
    lengths = [(100, 200) if one else (200, 100) for one in longer]
    found = fit_length_only(
        [float(one) for one in won],
        length_baseline=[one for one, _ in lengths],
        length_model=[other for _, other in lengths],
    )
    assert sum(won) / 12 == pytest.approx(0.5833, abs=1e-4) and found.rate.value == pytest.approx(0.5)
    assert found.weights.length < 0, "shorter than the baseline loses"


def test_equally_long_answers_leave_nothing_to_control():
    found = fit_length_only([1.0, 0.0], length_baseline=[5, 5], length_model=[5, 5])
    assert (found.rate.value, found.rate.undefined) == (
        None, "every answer differs from the baseline's by the same length",
    )  # fmt: skip
