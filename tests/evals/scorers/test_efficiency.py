"""Time, memory and growth against a reference: the formula by hand, and real answers in the real sandbox."""

from dataclasses import replace

import pytest

from evals.scorers.efficiency import Compared, Efficiency, compared, judge
from evals.scorers.execution import Runner
from evals.scorers.growth import Interval
from evals.scorers.sandbox.confinement import Limits
from evals.scorers.sandbox.examiner import digest_of
from evals.scorers.sandbox.host import Call, Execution, Outcome, failed
from evals.scorers.scorer import ProblemSpec, Status

TESTS = {
    "function": "has_twins",
    "cases": [{"args": [[1, 2, 1]], "expected": True}, {"args": [[1, 2]], "expected": False}],
    "efficiency": {
        "reference": "def has_twins(values):\n    return len(set(values)) < len(values)",
        "make": "def make(n):\n    return [[(i * 7919) % 1_000_003 for i in range(n)]]",
        "sizes": [4000, 8000, 16_000, 32_000, 64_000],
    },
}
RUNNING = {
    "function": "running",
    "cases": [{"args": [[1, 2, 3]], "expected": [1, 3, 6]}, {"args": [[]], "expected": []}],
    "efficiency": {
        "reference": "def running(values):\n    found, total = [], 0\n    for value in values:\n"
        "        total += value\n        found.append(total)\n    return found",
        "make": "def make(n): return [[i % 7 for i in range(n)]]",
        "sizes": [1500, 3000, 6000, 12_000],
    },
}
AGAIN_AND_AGAIN = "def running(values):\n    return [sum(values[: n + 1]) for n in range(len(values))]"
PROBLEM = ProblemSpec(id="twins", messages=[], tests=TESTS)
SETS = "def has_twins(values):\n    seen = set(values)\n    return len(seen) != len(values)"


def interval(estimate, doubt=0.0):
    return Interval(estimate=estimate, low=estimate - doubt, high=estimate + doubt)


def found(**changes):
    base = Compared(
        size=100, reference_s=0.01, answer_s=0.01, time=interval(1.0), noise=interval(1.0), memory=1.0,
        growth=interval(1.0), reference_growth=interval(1.0), extra_growth=interval(0.0),
    )  # fmt: skip
    return replace(base, **changes)


def test_as_good_as_the_reference_is_everything_and_better_is_no_more():
    assert judge(found()).value == 1.0
    assert judge(found(time=interval(0.2), memory=0.5, extra_growth=interval(-1.0))).value == 1.0


def test_twice_the_time_four_times_the_memory_and_half_a_power_more():
    # .5 x 1/2 + .25 x 1/4 + .25 x (1 - .5)
    score = judge(found(time=interval(2.0), memory=4.0, extra_growth=interval(0.5, 0.1)))
    assert score.value == pytest.approx(0.4375)
    assert {name: score.parts[name] for name in ("time", "memory", "growth")} == {
        "time": 0.5, "memory": 0.25, "growth": 0.5,
    }  # fmt: skip


@pytest.mark.parametrize("unknown", [None, interval(0.5, 0.6)])
def test_unknown_growth_is_left_out_and_is_no_zero(unknown):
    # (.5 x 1/2 + .25 x 1) / .75
    score = judge(found(time=interval(2.0), extra_growth=unknown))
    assert score.value == pytest.approx(2 / 3)
    assert "growth" not in score.parts and "not known" in score.explanation


def test_growth_that_may_be_the_references_is_not_held_against_it():
    assert judge(found(extra_growth=interval(0.2, 0.3))).value == 1.0


def test_too_much_noise_is_unscored():
    noisy = Interval(estimate=1.5, low=1.0, high=2.2)
    score = judge(found(time=noisy, noise=Interval(estimate=1.0, low=0.7, high=1.4)))
    assert (score.value, score.explanation[:9]) == (None, "too noisy")


def test_an_answer_cannot_make_its_own_noise_to_be_left_out():
    score = judge(found(time=Interval(estimate=1.5, low=1.0, high=4.0)))
    assert score.parts["time"] == 0.25


def test_noise_that_changes_nothing_is_no_reason():
    assert judge(found(time=Interval(estimate=0.3, low=0.1, high=0.9), noise=interval(1.0, 0.5))).value == 1.0


def test_a_reference_that_is_too_quick_is_unscored():
    assert judge(found(reference_s=0.0001)).status is Status.UNSCORED


def run(*seconds, around_s=0.01, load_s=0.001, peak=10 << 20):
    calls = tuple(Call(size=10**n, cpu_s=s, around_cpu_s=around_s, digest="") for n, s in enumerate(seconds, start=1))
    return Execution(outcome=Outcome.OK, detail="", level="", calls=calls, load_cpu_s=load_s, peak_bytes=peak)


def test_what_an_empty_function_costs_is_taken_off():
    empty = [run(0.1, 0.1, 0.1, 0.1)] * 3
    reference = [run(0.101, 0.11, 0.2, 1.1, peak=14 << 20)] * 3
    answer = [run(0.102, 0.12, 0.3, 2.1, peak=18 << 20)] * 3
    result = compared(answer, reference, empty)
    assert (result.size, result.reference_s, result.answer_s) == pytest.approx((10_000, 1.0, 2.0))
    assert (result.time.estimate, result.memory) == pytest.approx((2.0, 2.0))
    # reference .001, .01, .1, 1 and answer .002, .02, .2, 2
    assert (result.reference_growth.estimate, result.growth.estimate) == pytest.approx((1.0, 1.0))
    assert result.extra_growth.estimate == pytest.approx(0.0, abs=1e-9)


def test_loading_counts_and_what_stopped_early_is_compared_where_both_were_asked():
    empty = [run(0.0, 0.0, 0.0)] * 2
    # the reference's load is .001: 1.5 times that, and a millisecond, are let pass
    result = compared([run(0.01, 0.1, load_s=0.1025)] * 2, [run(0.01, 0.1, 1.0)] * 2, empty)
    assert (result.size, result.time.estimate) == (100, pytest.approx(2.0))


def test_work_done_outside_of_the_call_counts_too():
    # .01 of travel and half of it, and a millisecond, are let pass: .516 - .016
    empty, reference = [run(0.0, 0.0)] * 2, [run(0.1, 0.5)] * 2
    result = compared([run(0.0, 0.0, around_s=0.516)] * 2, reference, empty)
    assert (result.answer_s, result.reference_s) == pytest.approx((0.5, 0.5))


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ({3, 1, 2}, {2, 3, 1}, True),
        ({"b": 1, "a": {2}}, {"a": {2}, "b": 1}, True),
        (0.1 + 0.2, 0.3, True),
        ([1, (2, 3)], (1, [2, 3]), True),
        ([1.0, True, -0.0], [1, 1, 0], True),
        (1 << 20_000, (1 << 20_000) + 1, False),
        (float("inf"), float("nan"), False),
        (0.1, 0.10001, False),
        ([1, 2], [2, 1], False),
        ("1", 1, False),
        ([], None, False),
        ({1}, [1], False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_results_are_compared_whatever_the_order_of_a_set_and_the_last_digits(one, other, is_same):
    assert (digest_of(one) == digest_of(other)) is is_same


def test_an_answer_like_the_reference_is_about_as_good(sandbox):
    score = Efficiency(Runner(sandbox)).score(PROBLEM, SETS)
    if score.status is Status.UNSCORED:
        assert "too noisy" in score.explanation  # the machine is busy, and that is said
    else:
        assert score.value > 0.7 and score.parts["reference_growth_exponent"]["estimate"] < 1.5


def test_a_quadratic_answer_is_found_out_by_its_growth(sandbox):
    score = Efficiency(Runner(sandbox), repeats=3).score(replace(PROBLEM, tests=RUNNING), AGAIN_AND_AGAIN)
    assert score.parts["growth_exponent"]["estimate"] == pytest.approx(2, abs=0.25)
    assert score.parts["reference_growth_exponent"]["estimate"] == pytest.approx(1, abs=0.25)
    assert score.parts["time"] < 0.05 and score.parts["growth"] < 0.3
    assert score.value < 0.4


def test_an_answer_that_needs_more_memory_is_found_out(sandbox):
    hoarder = SETS.replace("seen = set(values)", "seen = set(values)\n    kept = [[value] for value in values * 8]")
    score = Efficiency(Runner(sandbox)).score(PROBLEM, hoarder)
    assert score.parts["memory_ratio"] > 2 if score.value is not None else "noisy" in score.explanation


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("def has_twins(values): return len(values) == 3", "its result differs from the reference's at size 200"),
        ("def has_twins(values):\n    while len(values) > 3: pass\n    return len(values) == 3", "timeout"),
        ("def has_twins(values):\n    if len(values) > 3: 'x' * 10**10\n    return len(values) == 3", "oom"),
        ("import os\ndef has_twins(values):\n    return len(values) == 3 if len(values) < 9 else os._exit(0)", "crash"),
    ],
)
def test_an_answer_that_only_holds_for_the_tests_gets_nothing(answer, reason, sandbox):
    efficiency = {**TESTS["efficiency"], "make": "def make(n): return [[7] * n]", "sizes": [200, 400]}
    scorer = Efficiency(Runner(sandbox), limits=Limits(wall_s=3.0, cpu_s=1))
    score = scorer.score(replace(PROBLEM, tests={**TESTS, "efficiency": efficiency}), answer)
    assert (score.value, score.status) == (0.0, Status.SCORED)
    assert score.explanation.startswith(reason)


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        (None, "the problem has no tests"),
        ({**TESTS, "efficiency": None}, "the problem has no reference solution"),
        (
            {**TESTS, "efficiency": {**TESTS["efficiency"], "reference": "def has_twins(v): return 1 / 0"}},
            "the reference solution cannot be measured",
        ),
        (
            {**TESTS, "efficiency": {**TESTS["efficiency"], "make": "def make(n): return 1 / 0"}},
            "the empty solution cannot be measured",
        ),
        ({**TESTS, "efficiency": {**TESTS["efficiency"], "sizes": [1, 2, 3, 4]}}, "the reference takes"),
    ],
)
def test_without_a_usable_reference_it_is_unscored(tests, reason, sandbox):
    score = Efficiency(Runner(sandbox)).score(replace(PROBLEM, tests=tests), SETS)
    assert (score.value, score.status) == (None, Status.UNSCORED)
    assert score.explanation.startswith(reason)


def test_a_wrong_answer_is_not_timed(sandbox):
    score = Efficiency(Runner(sandbox)).score(PROBLEM, "def has_twins(values): return True")
    assert (score.value, score.explanation) == (None, "only an answer that passes its tests is timed")


class LostSandbox:
    def __init__(self, sandbox, *, after):
        self._sandbox, self._left = sandbox, after

    def run(self, code, tests, *, limits):
        self._left -= 1
        lost = failed(Outcome.SANDBOX_FAULT, "lost", level="")
        return lost if self._left < 0 else self._sandbox.run(code, tests, limits=limits)


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_fault_masks_it(after, sandbox):
    score = Efficiency(Runner(LostSandbox(sandbox, after=after))).score(PROBLEM, SETS)
    assert (score.value, score.status) == (None, Status.INFRA)


def test_an_answer_cannot_hide_its_time_behind_a_clock_of_its_own(sandbox):
    slow = (
        "import time\ntime.process_time = time.perf_counter = time.monotonic = lambda: 0.0\n"
        "def has_twins(values):\n    for _ in range(300_000): pass\n    return len(set(values)) < len(values)"
    )
    score = Efficiency(Runner(sandbox)).score(PROBLEM, slow)
    assert score.parts["answer_ms"] > score.parts["reference_ms"] + 2 if score.value is not None else True
