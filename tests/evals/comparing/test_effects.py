from decimal import Decimal

import pytest

from evals.comparing.effects import effects_of, expense_of
from evals.comparing.matching import RunPair, match_runs
from evals.comparing.names import Name
from evals.comparing.problems import Answer, Paired, ProblemPair, read_pairs
from evals.models import Benchmark, EvalRun
from registry.tenancy import tenant

RUNS = RunPair(a=EvalRun(benchmark=Benchmark(name="adding")), b=EvalRun(benchmark=Benchmark(name="adding")))


def answer(value, **facts):
    return Answer(
        **{
            "value": value, "status": "scored", "num_repeats": 1, "latency_ms": None, "output_tokens": None,
            "cost_usd": None,
        } | facts
    )  # fmt: skip


def paired(*rows):
    """(a's value, b's value, slices) of each problem."""
    problems = [
        ProblemPair(
            key=index, problem_id=f"p{index}", benchmark="adding@1", slices=slices, a=answer(a), b=answer(b)
        )
        for index, (a, b, slices) in enumerate(rows)
    ]  # fmt: skip
    return Paired(runs=RUNS, problems=tuple(problems), is_cut=False)


def test_the_whole_comes_first_then_every_half_and_family():
    rows = [(0, 1, {"half": half, "family": family}) for half in ("seen", "unseen") for family in ("add", "sort")]
    assert [row.slice for row in effects_of(paired(*rows)).rows] == [
        "all", "half: seen", "half: unseen", "family: add", "family: sort",
    ]  # fmt: skip


def test_a_slice_with_a_single_value_says_nothing_more_than_the_whole():
    assert [row.slice for row in effects_of(paired((0, 1, {"half": "all"}), (1, 1, {"half": "all"}))).rows] == ["all"]


def test_a_difference_is_b_minus_a_with_its_clustered_error_and_a_named_interval():
    # families of two with differences 1 1 | 0 0 | 0 0: mean 1/3, clustered SE 1/3 (see test_paired)
    rows = [(0, 1, {"family": "x"})] * 2 + [(1, 1, {"family": "y"})] * 2 + [(1, 1, {"family": "z"})] * 2
    whole = effects_of(paired(*rows)).rows[0]
    assert (whole.difference.mean, whole.difference.clustered_se) == (pytest.approx(1 / 3), pytest.approx(1 / 3))
    assert (whole.interval.kind, whole.num_common) == ("clustered t", 6)


def test_an_unscored_answer_is_asked_but_not_common():
    whole = effects_of(paired((1, None, {}), (1, 0, {}))).rows[0]
    assert (whole.num_asked, whole.num_common) == (2, 1)


def test_nothing_in_common_is_said_with_0_cases_and_no_difference():
    whole = effects_of(paired((1, None, {}), (None, 0, {}))).rows[0]
    assert (whole.num_common, whole.difference, whole.interval) == (0, None, None)


def test_of_many_families_the_largest_are_shown_and_the_rest_is_counted():
    rows = [(0, 1, {"family": f"f{i}"}) for i in range(5)] + [(0, 1, {"family": "f0"})]
    effects = effects_of(paired(*rows), limit=2)
    assert [row.slice for row in effects.rows] == ["all", "family: f0", "family: f1"] and effects.num_left_out == 3


def test_medians_and_mean_cost_are_over_the_problems_both_answered():
    both = ProblemPair(
        key=1, problem_id="p", benchmark="b", slices={},
        a=answer(1, latency_ms=100.0, output_tokens=10, cost_usd=Decimal("0.1")),
        b=answer(1, latency_ms=50.0, output_tokens=30, cost_usd=None),
    )  # fmt: skip
    alone = ProblemPair(key=2, problem_id="q", benchmark="b", slices={}, a=answer(1, latency_ms=9.0), b=None)
    expense = expense_of([both, alone])
    assert (expense.num_common, expense.latency_ms, expense.output_tokens) == (1, (100.0, 50.0), (10, 30))
    assert (expense.cost_usd, expense.num_unpriced) == ((Decimal("0.1"), None), (0, 1))


def test_two_real_runs_come_out_as_the_gate_would_see_them(project, bench, run):
    problems = {f"p{i}": {"family": f"f{i % 3}", "half": ["seen", "unseen"][i % 2]} for i in range(12)}
    adding = bench(problems)
    run(adding, "editor@1", {key: float(i % 2) for i, key in enumerate(problems)})
    run(adding, "editor@2", dict.fromkeys(problems, 1.0))
    with tenant(project.id):
        found = read_pairs(match_runs(Name.of("editor@1", field="a"), Name.of("editor@2", field="b")))
    effects = {row.slice: row for row in effects_of(found[0]).rows}
    assert effects["all"].difference.mean == 0.5 and effects["half: seen"].difference.mean == 1.0
    assert effects["half: unseen"].interval.kind == "exact"


def test_a_slice_below_the_minimum_is_too_few_to_say_and_the_whole_never_is():
    rows = [(0, 1, {"family": "small"})] * 4 + [(1, 1, {"family": "large"})] * 5
    found = {row.slice: row.is_enough for row in effects_of(paired(*rows)).rows}
    assert found == {"all": True, "family: large": True, "family: small": False}


def test_right_and_wrong_answers_have_an_exact_p_and_all_say_what_they_could_have_seen():
    """12 better and 3 worse of 80: exact p .0352; sd of the differences .4215, so 80 problems see 13.2 points."""
    whole = effects_of(paired(*[(0, 1, {})] * 12, *[(1, 0, {})] * 3, *[(1, 1, {})] * 65)).rows[0]
    assert whole.mcnemar == pytest.approx(0.03516, abs=1e-5)
    assert whole.smallest_visible == pytest.approx(2.80159 * whole.difference.se, abs=1e-5)
    assert whole.smallest_visible == pytest.approx(0.132, abs=5e-4)
    assert effects_of(paired((0.5, 1, {}), (0, 1, {}))).rows[0].mcnemar is None
