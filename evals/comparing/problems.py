"""Two runs, problem by problem. Inside a tenant; one query, bounded.

`b` is the new side: a difference is b - a, a regression is a problem on which b does worse.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

from django.db.models import F

from evals.comparing.matching import Matching, RunPair
from evals.models import Score

MAX_ANSWERS = 60_000  # of all matched runs together


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What one side made of a problem, over its repeats."""

    value: float | None  # mean of the scored repeats; None: unscored
    status: str  # of the last repeat
    num_repeats: int
    latency_ms: float | None  # mean over the repeats that told it
    output_tokens: float | None
    cost_usd: Decimal | None  # mean; None where one repeat is unpriced
    scored: tuple[float, ...] = ()  # scores of the repeats that have one


class Change(StrEnum):
    """What became of a problem from a to b."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    EQUAL = "equal"
    UNSCORED = "unscored"  # answered by both, not scored on one side or both
    ONE_SIDED = "one_sided"  # answered by one side only


class Steadiness(StrEnum):
    """Whether a change would be there if both sides were asked again."""

    REAL = "real"  # every try of one side scores more than every try of the other, two tries or more on each
    FLAKY = "flaky"  # the tries of the two sides overlap
    ONE_TRY = "one_try"  # a side has a single scored try: nobody can tell


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemPair:
    """One problem and both answers to it."""

    key: int  # of the Problem
    problem_id: str
    benchmark: str
    slices: dict[str, str]
    a: Answer | None
    b: Answer | None

    @property
    def difference(self) -> float | None:
        if self.a is None or self.b is None or self.a.value is None or self.b.value is None:
            return None
        return self.b.value - self.a.value

    @property
    def change(self) -> Change:
        if self.a is None or self.b is None:
            return Change.ONE_SIDED
        if self.difference is None:
            return Change.UNSCORED
        if self.difference == 0:
            return Change.EQUAL
        return Change.REGRESSION if self.difference < 0 else Change.IMPROVEMENT

    @property
    def steadiness(self) -> Steadiness | None:
        """None where nothing changed."""
        if self.a is None or self.b is None or not self.difference:
            return None
        worse, better = (self.a.scored, self.b.scored) if self.difference > 0 else (self.b.scored, self.a.scored)
        if min(len(worse), len(better)) < 2:
            return Steadiness.ONE_TRY
        return Steadiness.REAL if max(worse) < min(better) else Steadiness.FLAKY


@dataclass(frozen=True, kw_only=True, slots=True)
class Paired:
    """All problems of one pair of runs."""

    runs: RunPair
    problems: tuple[ProblemPair, ...]
    is_cut: bool  # more answers than MAX_ANSWERS: the rest was not read


def read_pairs(matching: Matching) -> list[Paired]:
    """Answers of every matched run, joined on the problem. One query."""
    runs = {run.id: run for pair in matching.pairs for run in (pair.a, pair.b)}
    rows = list(
        Score.objects.filter(run_id__in=list(runs), scorer=F("run__scorer"))
        .order_by("run_id", "problem_id", "repeat")
        .values(
            "run_id", "problem_id", "problem__problem_id", "problem__slices", "status", "value", "latency_ms", "usage",
            "cost_usd",
        )[: MAX_ANSWERS + 1]
    )  # fmt: skip
    by_run: dict[Any, dict[int, list[dict[str, Any]]]] = {run_id: {} for run_id in runs}
    for row in rows[:MAX_ANSWERS]:
        by_run[row["run_id"]].setdefault(row["problem_id"], []).append(row)
    is_cut = len(rows) > MAX_ANSWERS
    return [
        Paired(runs=pair, problems=tuple(_join(pair, by_run[pair.a.id], by_run[pair.b.id])), is_cut=is_cut)
        for pair in matching.pairs
    ]


def _join(
    pair: RunPair, a: dict[int, list[dict[str, Any]]], b: dict[int, list[dict[str, Any]]]
) -> Iterable[ProblemPair]:
    for key in sorted(a.keys() | b.keys()):
        row = (a.get(key) or b[key])[0]
        yield ProblemPair(
            key=key,
            problem_id=row["problem__problem_id"],
            benchmark=pair.benchmark,
            slices=row["problem__slices"],
            a=_answer(a.get(key)),
            b=_answer(b.get(key)),
        )


def _answer(repeats: list[dict[str, Any]] | None) -> Answer | None:
    if not repeats:
        return None
    costs = [row["cost_usd"] for row in repeats]
    return Answer(
        value=_mean([row["value"] for row in repeats]),
        status=repeats[-1]["status"],
        num_repeats=len(repeats),
        scored=tuple(row["value"] for row in repeats if row["value"] is not None),
        latency_ms=_mean([row["latency_ms"] for row in repeats]),
        output_tokens=_mean([row["usage"].get("output") for row in repeats]),
        cost_usd=None if None in costs else sum(costs, Decimal(0)) / len(costs),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
