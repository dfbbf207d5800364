"""How an answer's time, memory and growth compare with a reference solution's, measured in the same sandbox.

A problem asks for it by `tests["efficiency"]` = {"reference": source, "make": source, "sizes": [n, ...]}: `make(n)`
gives the arguments of a call of size n. Only an answer that passes its tests is measured. For five rounds, or up to
twenty while there is too much noise, a new process each of the answer, the reference and a function that does nothing
is asked every size, and the examiner reads the CPU time of that process from outside, before and after the call; what
the empty function took is taken off. What an answer does outside of the call, while it is loaded or where only
arguments and result should travel, is added where it is more than the reference's.

    time    min(1, reference / answer) at the largest size both were asked
    memory  min(1, reference / answer), peak resident memory above the empty function's, 1 MiB at least
    growth  1 when the answer's time grows no faster than the reference's, else 1 - (difference of exponents), >= 0
    value   (.5 time + .25 memory + .25 growth) / (weights of those that are known)

0 for an answer whose result differs from the reference's at some size, or that does not come to an end. Unscored when
there is no reference, the reference is too quick to time, or the noise leaves the time's part uncertain by over .2;
where the answer's time varies over three times as much as the reference's, that is its own doing, and the slow end of
the interval counts. Growth is unknown with fewer than four sizes that can be timed, or an interval wider than +-.5.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evals.scorers.execution import NO_TESTS, Runner, is_starved, shared
from evals.scorers.growth import MIN_SIZES, Interval, growth_exponent, ratio_of
from evals.scorers.sandbox.confinement import Limits
from evals.scorers.sandbox.host import Call, Execution, Outcome
from evals.scorers.scorer import ProblemSpec, Score, Status, unscored
from evals.scorers.source import python_of

REPEATS, MAX_FACTOR = 5, 4  # rounds at first, and how many times that at most
MORE_WITHIN_S = 15.0  # no more rounds are added after so long
LIMITS = Limits(wall_s=20.0, cpu_s=4)
SHORTEST_S = 0.0003  # of the reference at the largest size; below it, the clock and the cache decide
SLACK, SLACK_S = 1.5, 0.001  # times the reference's time around a call, and so much more, is nobody's doing
FLOOR_S = 0.000005  # what is timed as less counts as this
FLOOR_BYTES = 1 << 20
MAX_TIME_DOUBT = 0.2  # of the part that time contributes
OWN_NOISE = 3.0  # times the reference's doubt
MAX_GROWTH_DOUBT = 0.5  # half the width of the interval
WEIGHTS = {"time": 0.5, "memory": 0.25, "growth": 0.25}


class Efficiency:
    """At most 1: as good as the reference in time, memory and growth."""

    name = "efficiency"
    version = "1"

    def __init__(self, runner: Runner = shared, *, repeats: int = REPEATS, limits: Limits = LIMITS) -> None:
        self._runner = runner
        self._repeats = repeats
        self._limits = limits

    def score(self, problem: ProblemSpec, output: str) -> Score:
        if not problem.tests:
            return unscored(NO_TESTS)
        asked = problem.tests.get("efficiency")
        if not asked:
            return unscored("the problem has no reference solution")
        code = python_of(problem, output)
        passed = self._runner.run(code, problem.tests)
        if passed.outcome is Outcome.SANDBOX_FAULT:
            return _fault(passed)
        if passed.outcome is not Outcome.OK:
            return unscored("only an answer that passes its tests is timed")
        function = problem.tests["function"]
        return self._compare(code, asked, {"function": function, "make": asked["make"], "sizes": asked["sizes"]})

    def _compare(self, code: str, asked: Mapping[str, Any], measure: Mapping[str, Any]) -> Score:
        empty = f"def {measure['function']}(*args, **kwargs): return None"
        runs: dict[str, list[Execution]] = {"empty": [], "reference": [], "answer": []}
        sources = {"empty": empty, "reference": asked["reference"], "answer": code}
        deadline = time.monotonic() + MORE_WITHIN_S
        for n in range(1, MAX_FACTOR * self._repeats + 1):
            for who, kept in runs.items():  # in turns, so that a busy machine slows all of them
                execution = self._measured(sources[who], measure)
                if execution.outcome is Outcome.SANDBOX_FAULT:
                    return _fault(execution)
                if execution.outcome is not Outcome.OK and who == "answer":
                    return _worst(f"{execution.outcome.value}: {execution.detail}", execution.level)
                if execution.outcome is not Outcome.OK:
                    return unscored(f"the {who} solution cannot be measured: {execution.detail}")
                kept.append(execution)
            if size := _difference(runs["answer"][-1], runs["reference"][-1]):
                return _worst(f"its result differs from the reference's at size {size}", runs["answer"][-1].level)
            if n % self._repeats == 0:
                found = compared(runs["answer"], runs["reference"], runs["empty"])
                if not found.is_doubtful or time.monotonic() > deadline:
                    break
        return replace(judge(found), sandbox_level=runs["answer"][-1].level)

    def _measured(self, code: str, measure: Mapping[str, Any]) -> Execution:
        """A fault, or a timeout for want of CPU time, is tried a second time."""
        execution = self._runner.attempt(code, measure, limits=self._limits)
        if execution.outcome is Outcome.SANDBOX_FAULT or is_starved(execution):
            execution = self._runner.attempt(code, measure, limits=self._limits)
        return execution


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """An answer beside the reference."""

    size: int  # the largest both were asked
    reference_s: float  # median
    answer_s: float
    time: Interval  # answer / reference
    noise: Interval  # reference / its own median: the machine's part of the doubt
    memory: float  # answer / reference
    growth: Interval | None  # the answer's exponent
    reference_growth: Interval | None
    extra_growth: Interval | None  # exponent of answer / reference

    @property
    def is_doubtful(self) -> bool:
        """Whether time's part may be off by more than is allowed."""
        return _doubt(self.time) > MAX_TIME_DOUBT


def compared(answer: Sequence[Execution], reference: Sequence[Execution], empty: Sequence[Execution]) -> Compared:
    """Of runs in step: the i-th of each was made in the same round."""
    sizes = [call.size for call in min((*answer, *reference), key=lambda run: len(run.calls)).calls]
    largest = sizes[-1]
    nothing = {size: statistics.median(_call(run, size).cpu_s for run in empty) for size in sizes}
    travel = {
        size: SLACK_S + SLACK * statistics.median(_call(run, size).around_cpu_s for run in reference) for size in sizes
    }
    loading = SLACK_S + SLACK * statistics.median(run.load_cpu_s for run in reference)

    def spent(runs: Sequence[Execution], size: int) -> list[float]:
        calls = [_call(run, size) for run in runs]
        return [one.cpu_s - nothing[size] + max(0.0, one.around_cpu_s - travel[size]) for one in calls]

    def whole(runs: Sequence[Execution]) -> list[float]:
        calls = spent(runs, largest)
        return [max(FLOOR_S, call) + max(0.0, run.load_cpu_s - loading) for call, run in zip(calls, runs, strict=True)]

    # What disturbs a call only ever makes it longer.
    least = {size: [min(spent(runs, size)) for runs in (answer, reference)] for size in sizes}
    timed = [size for size in sizes if min(least[size]) > FLOOR_S]
    answers, references = ([least[size][who] for size in timed] for who in (0, 1))
    return Compared(
        size=largest,
        reference_s=statistics.median(whole(reference)),
        answer_s=statistics.median(whole(answer)),
        time=ratio_of(whole(answer), whole(reference)),
        noise=ratio_of(whole(reference), [statistics.median(whole(reference))] * len(reference)),
        memory=_memory(answer, empty) / _memory(reference, empty),
        growth=growth_exponent(timed, answers),
        reference_growth=growth_exponent(timed, references),
        extra_growth=growth_exponent(timed, [a / r for a, r in zip(answers, references, strict=True)]),
    )


def judge(found: Compared) -> Score:
    """The formula above."""
    if found.reference_s < SHORTEST_S:
        return unscored(f"the reference takes {1e6 * found.reference_s:.0f} us at size {found.size}: too quick to time")
    if found.is_doubtful and _doubt(found.time) < OWN_NOISE * _doubt(found.noise):
        return unscored(
            f"too noisy: it takes {found.time.low:.2f} to {found.time.high:.2f} times as long as the reference"
        )
    taken = found.time.high if found.is_doubtful else found.time.estimate
    extra = found.extra_growth
    known = {"time": _no_more_than_one(taken), "memory": _no_more_than_one(found.memory)}
    if extra is not None and extra.half_width <= MAX_GROWTH_DOUBT:
        known["growth"] = 1.0 if extra.low <= 0 else max(0.0, 1.0 - extra.estimate)
    value = sum(WEIGHTS[name] * part for name, part in known.items()) / sum(WEIGHTS[name] for name in known)
    words = f"{taken:.2f} times as long and {found.memory:.2f} times the memory of the reference"
    if "growth" in known and found.growth and found.reference_growth:
        exponents = f"size^{found.growth.estimate:.2f}, the reference's as size^{found.reference_growth.estimate:.2f}"
        words += f"; time grows as {exponents}"
    else:
        words += f"; how it grows is not known (it takes {MIN_SIZES} sizes that can be timed, without much noise)"
    return Score(value=value, status=Status.SCORED, explanation=words, parts=_parts(found, known))


def _parts(found: Compared, known: Mapping[str, float]) -> dict[str, Any]:
    intervals = {"growth_exponent": found.growth, "reference_growth_exponent": found.reference_growth}
    return {
        **{name: round(part, 4) for name, part in known.items()},
        "size": found.size,
        "answer_ms": round(1000 * found.answer_s, 3),
        "reference_ms": round(1000 * found.reference_s, 3),
        "time_ratio": found.time.to_json(),
        "memory_ratio": round(found.memory, 4),
        **{name: one.to_json() if one else None for name, one in intervals.items()},
    }


def _doubt(ratio: Interval) -> float:
    """How far the part that a ratio contributes may be off."""
    return _no_more_than_one(ratio.low) - _no_more_than_one(ratio.high)


def _no_more_than_one(ratio: float) -> float:
    return min(1.0, 1.0 / ratio)


def _call(run: Execution, size: int) -> Call:
    return next(call for call in run.calls if call.size == size)


def _memory(runs: Sequence[Execution], empty: Sequence[Execution]) -> float:
    above = statistics.median(run.peak_bytes for run in runs) - statistics.median(run.peak_bytes for run in empty)
    return max(FLOOR_BYTES, above)


def _difference(answer: Execution, reference: Execution) -> int | None:
    """The first size at which they do not give the same."""
    wanted = {call.size: call.digest for call in reference.calls}
    return next((call.size for call in answer.calls if wanted.get(call.size, call.digest) != call.digest), None)


def _worst(explanation: str, level: str) -> Score:
    return Score(value=0.0, status=Status.SCORED, explanation=explanation, sandbox_level=level)


def _fault(execution: Execution) -> Score:
    return Score(
        value=None,
        status=Status.INFRA,
        explanation=f"{execution.outcome.value}: {execution.detail}",
        sandbox_level=execution.level,
    )
