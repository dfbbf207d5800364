"""Several tries at each item: first one number per item, then the error over items.

The error over items says how the score would move with other items of the same kind. The spread between whole runs says
only how much of it is luck in sampling answers; it is the smaller one, and no error of the score.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence

from evals.statistics.estimate import CONFIDENCE, Estimate, scored
from evals.statistics.means import estimate_mean, mean, standard_error

Reduce = Callable[[Sequence[float]], float]


def at_least(k: int, *, of: float = 1.0) -> Reduce:
    """1 where k tries or more reached `of`, else 0."""
    return lambda tries: float(sum(score >= of for score in tries) >= k)


def over_items(
    tries: Mapping[Hashable, Sequence[float | None]],
    *,
    reduce: Reduce = mean,
    clusters: Mapping[Hashable, Hashable] | None = None,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """Mean over items of `reduce` over each item's scored tries; an item without a scored try is unscored.

    For equally many tries and `mean` the error equals the one clustered by item, with its factor G/(G-1).
    """
    reduced = [reduce(known) if (known := [score for _, score in scored(row)]) else None for row in tries.values()]
    labels = None if clusters is None else [clusters[item] for item in tries]
    return estimate_mean(reduced, clusters=labels, confidence=confidence)


def spread_of_runs(runs: Sequence[Sequence[float]]) -> float | None:
    """Standard error of the mean of whole runs' scores: sampling noise alone. None for fewer than two runs."""
    return standard_error([mean(run) for run in runs])
