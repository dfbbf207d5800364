"""How large the difference is, on the whole and on every slice, and what a problem takes on each side. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from evals.comparing.problems import Answer, Paired, ProblemPair
from evals.statistics.estimate import Kind
from evals.statistics.paired import (
    Interval,
    NothingInCommon,
    PairedDifference,
    mcnemar_exact,
    paired_difference,
    two_sided,
)
from evals.statistics.power import minimal_detectable_effect

ALL = "all"  # the slice of every problem
LEVEL = 0.975  # one-sided at each end: the drawn intervals are 95 %
MIN_CASES = 5  # a slice with fewer is too few to say


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """The paired difference b - a on one part of a benchmark."""

    benchmark: str
    slice: str  # "all", "half: seen families", "family: add"
    num_asked: int  # problems of this part that either side answered
    difference: PairedDifference | None  # None: 0 cases in common
    interval: Interval | None
    mcnemar: float | None = None  # exact two-sided p of better against worse; None where scores are more than 0 and 1
    smallest_visible: float | None = None  # a difference that so many problems find 4 times of 5; None: unknown

    @property
    def is_enough(self) -> bool:
        return self.slice == ALL or self.num_common >= MIN_CASES

    @property
    def num_common(self) -> int:
        return self.difference.num_pairs if self.difference else 0

    @property
    def num_unmatched(self) -> int:
        """Asked, but without a score on both sides."""
        return self.num_asked - self.num_common


@dataclass(frozen=True, kw_only=True, slots=True)
class Effects:
    rows: tuple[Effect, ...]
    num_left_out: int = 0  # families beyond the limit


def effects_of(paired: Paired, *, slices: Sequence[str] = ("half", "family"), limit: int = 16) -> Effects:
    """Over all problems, then over every value of each slice; of one slice the `limit` values with most problems."""
    rows, num_left_out = [_effect(paired, ALL, paired.problems)], 0
    for name in slices:
        parts: dict[str, list[ProblemPair]] = {}
        for problem in paired.problems:
            if (value := problem.slices.get(name)) is not None:
                parts.setdefault(str(value), []).append(problem)
        if len(parts) < 2:
            continue  # the same problems as "all"
        largest = sorted(parts, key=lambda value: (-len(parts[value]), value))
        num_left_out += max(0, len(largest) - limit)
        rows += [_effect(paired, f"{name}: {value}", parts[value]) for value in sorted(largest[:limit])]
    return Effects(rows=tuple(rows), num_left_out=num_left_out)


def _effect(paired: Paired, name: str, problems: Sequence[ProblemPair]) -> Effect:
    try:
        difference = paired_difference(
            {str(one.key): one.b.value for one in problems if one.b},
            {str(one.key): one.a.value for one in problems if one.a},
            clusters={str(one.key): one.slices["family"] for one in problems if "family" in one.slices},
            confidence=LEVEL,
        )
    except NothingInCommon:
        return Effect(
            benchmark=paired.runs.benchmark, slice=name, num_asked=len(problems), difference=None, interval=None
        )
    interval = two_sided(difference)
    scores = {side.value for one in problems if one.difference is not None for side in (one.a, one.b) if side}
    return Effect(
        benchmark=paired.runs.benchmark,
        slice=name,
        num_asked=len(problems),
        difference=difference,
        interval=interval,
        mcnemar=mcnemar_exact(difference.better, difference.worse) if scores <= {0.0, 1.0} else None,
        smallest_visible=_smallest_visible(difference, interval),
    )


def _smallest_visible(difference: PairedDifference, interval: Interval) -> float | None:
    """From the error that the interval rests on: that of n problems is the spread of one such mean."""
    error = difference.clustered_se if interval.kind == Kind.CLUSTERED_T else difference.se
    return None if error is None else minimal_detectable_effect(sd=error, n=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Expense:
    """What a problem takes on each side, over the problems that both answered."""

    num_common: int
    latency_ms: tuple[float | None, float | None]  # median of a, of b
    output_tokens: tuple[float | None, float | None]  # median
    cost_usd: tuple[Decimal | None, Decimal | None]  # mean as billed; None where an answer is unpriced
    num_unpriced: tuple[int, int]


def expense_of(problems: Iterable[ProblemPair]) -> Expense:
    both = [(one.a, one.b) for one in problems if one.a and one.b]
    sides = ([a for a, _ in both], [b for _, b in both])
    return Expense(
        num_common=len(both),
        latency_ms=(_median(sides[0], "latency_ms"), _median(sides[1], "latency_ms")),
        output_tokens=(_median(sides[0], "output_tokens"), _median(sides[1], "output_tokens")),
        cost_usd=(_mean_cost(sides[0]), _mean_cost(sides[1])),
        num_unpriced=(
            sum(one.cost_usd is None for one in sides[0]),
            sum(one.cost_usd is None for one in sides[1]),
        ),
    )


def _median(answers: Sequence[Answer], name: str) -> float | None:
    known = sorted(value for one in answers if (value := getattr(one, name)) is not None)
    if not known:
        return None
    middle = len(known) // 2
    return known[middle] if len(known) % 2 else (known[middle - 1] + known[middle]) / 2


def _mean_cost(answers: Sequence[Answer]) -> Decimal | None:
    costs = [one.cost_usd for one in answers]
    if not costs or None in costs:
        return None
    return sum((cost for cost in costs if cost is not None), Decimal(0)) / len(costs)
