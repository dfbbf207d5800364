"""How far several raters agree beyond chance: Fleiss' kappa, and Krippendorff's alpha where ratings are missing.

Two raters who rated the same items: `agreement.cohen_kappa`. Both numbers are undefined where every rating is the same:
chance alone explains that.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from enum import StrEnum
from itertools import combinations

import numpy as np

from evals.statistics.bootstrap import Bootstrap, bootstrap_statistic
from evals.statistics.estimate import CONFIDENCE, Estimate, unknown

Ratings = Sequence[Sequence[Hashable | None]]  # per item one rating per rater; None: not rated


class Level(StrEnum):
    """What differences between ratings mean."""

    NOMINAL = "nominal"  # equal or not
    ORDINAL = "ordinal"  # numbers of which only the order counts
    INTERVAL = "interval"  # numbers
    RATIO = "ratio"  # numbers with a zero


def fleiss_kappa(counts: Sequence[Sequence[int]]) -> float | None:
    """Fleiss (1971) from counts per item (row) and label (column); every item has equally many ratings, 2 or more."""
    table = np.asarray(counts, dtype=float)
    if table.ndim != 2 or not len(table):
        return None
    num_ratings = table.sum(axis=1)
    if num_ratings.min() != num_ratings.max() or num_ratings[0] < 2:
        raise ValueError(
            f"items have {num_ratings.min():.0f} to {num_ratings.max():.0f} ratings; Fleiss' kappa needs equally many, "
            "2 or more: use krippendorff_alpha"
        )
    n = float(num_ratings[0])
    by_chance = float(((table.sum(axis=0) / table.sum()) ** 2).sum())
    observed = float(((table**2).sum(axis=1) - n).mean() / (n * (n - 1)))
    return None if by_chance == 1 else (observed - by_chance) / (1 - by_chance)


def krippendorff_alpha(ratings: Ratings, *, level: Level = Level.NOMINAL) -> float | None:
    """1 - observed / expected disagreement, from coincidences within items (Krippendorff 2011).

    An item with fewer than two ratings says nothing and is left out. None where no item is left, or all ratings in what
    is left are the same.
    """
    paired = [known for row in ratings if len(known := [rating for rating in row if rating is not None]) > 1]
    times = Counter(rating for row in paired for rating in row)
    if len(times) < 2:
        return None
    distance = _distance(level, times)
    total = sum(times.values())
    observed = sum(2 * sum(distance(a, b) for a, b in combinations(row, 2)) / (len(row) - 1) for row in paired)
    expected = sum(2 * times[a] * times[b] * distance(a, b) for a, b in combinations(times, 2)) / (total - 1)
    return 1 - observed / expected


def krippendorff(
    ratings: Ratings,
    *,
    level: Level = Level.NOMINAL,
    resamples: int = 1_000,
    seed: int = 0,
    confidence: float = CONFIDENCE,
) -> Bootstrap:
    """`krippendorff_alpha` with its interval from resampled items; n counts items with two ratings or more."""
    usable = [row for row in ratings if sum(rating is not None for rating in row) > 1]
    if krippendorff_alpha(usable, level=level) is None:
        why = "all ratings are the same" if usable else "no item was rated twice"
        nothing = unknown(why, n=len(usable), num_asked=len(ratings), confidence=confidence)
        return Bootstrap(estimate=nothing, resamples=resamples, seed=seed)
    found = bootstrap_statistic(
        lambda places: krippendorff_alpha([usable[place] for place in places], level=level),
        clusters=range(len(usable)), resamples=resamples, seed=seed, confidence=confidence,
    )  # fmt: skip
    one = found.estimate
    estimate = Estimate(
        value=one.value, se=one.se, low=one.low, high=one.high, interval=one.interval, confidence=confidence,
        n=one.n, num_asked=len(ratings), num_clusters=one.num_clusters, undefined=one.undefined,
    )  # fmt: skip
    return Bootstrap(estimate=estimate, resamples=resamples, seed=seed)


def _distance(level: Level, times: Counter[Hashable]) -> Callable[[Hashable, Hashable], float]:
    """Squared difference of two ratings. Ordinal: how many ratings lie between them, each end counting half."""
    if level == Level.NOMINAL:
        return lambda a, b: float(a != b)
    wrong = [rating for rating in times if not isinstance(rating, int | float)]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is no number; {level} ratings are, others are {Level.NOMINAL}")
    if level == Level.INTERVAL:
        return lambda a, b: float((a - b) ** 2)  # type: ignore[operator]
    if level == Level.RATIO:
        return lambda a, b: float(((a - b) / (a + b)) ** 2) if a != b else 0.0  # type: ignore[operator]
    order = sorted(times)  # type: ignore[type-var]
    before = dict(zip(order, np.cumsum([0, *[times[rating] for rating in order]])[:-1].tolist(), strict=True))
    middle = {rating: before[rating] + times[rating] / 2 for rating in order}
    return lambda a, b: float((middle[a] - middle[b]) ** 2)
