"""The standard error of a mean, also when observations come in clusters.

Two turns of one user, or two problems of one family, are not two independent facts: the clustered error adds residuals
up within a cluster before squaring. None means "cannot be known from this", which is never the same as 0.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence

from evals.statistics.estimate import CONFIDENCE, Estimate, around, scored, unknown


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; raises ValueError on nothing, since the mean of nothing is not 0."""
    if not values:
        raise ValueError("the mean of no values is undefined")
    return math.fsum(values) / len(values)


def standard_error(values: Sequence[float]) -> float | None:
    """Sample standard deviation (ddof 1) over sqrt(n); None for fewer than two values."""
    if len(values) < 2:
        return None
    middle = mean(values)
    squares = math.fsum((value - middle) ** 2 for value in values)
    return math.sqrt(squares / (len(values) - 1) / len(values))


def clustered_standard_error(
    values: Sequence[float], clusters: Sequence[Hashable], *, small_sample: bool = True
) -> float | None:
    """sqrt(sum over clusters of (sum of residuals)^2) / n; None for fewer than two clusters.

    `small_sample` multiplies by sqrt(G/(G-1)), as Inspect does; Miller (arXiv 2411.00640, appendix A) leaves it out.
    """
    if len(values) != len(clusters):
        raise ValueError(f"{len(values)} values came with {len(clusters)} clusters; send one cluster per value")
    if not values:
        return None
    middle = mean(values)
    residuals: defaultdict[Hashable, float] = defaultdict(float)
    for value, cluster in zip(values, clusters, strict=True):
        residuals[cluster] += value - middle
    num_clusters = len(residuals)
    if num_clusters < 2:
        return None
    factor = num_clusters / (num_clusters - 1) if small_sample else 1.0
    return math.sqrt(factor * math.fsum(total**2 for total in residuals.values())) / len(values)


def estimate_mean(
    values: Sequence[float | None],
    *,
    clusters: Sequence[Hashable] | None = None,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """The mean of what is scored with its t interval: n - 1 degrees of freedom, or G - 1 for G clusters.

    None is unscored: it lowers the coverage and stays outside the mean. For shares use `proportions`, whose interval
    also holds where nothing varied.
    """
    if clusters is not None and len(clusters) != len(values):
        raise ValueError(f"{len(values)} values came with {len(clusters)} clusters; send one cluster per value")
    known = scored(values)
    numbers = [value for _, value in known]
    labels = None if clusters is None else [clusters[place] for place, _ in known]
    num_clusters = None if labels is None else len(set(labels))
    if not numbers:
        return unknown(
            f"none of {len(values)} is scored" if values else "no data",
            num_asked=len(values), num_clusters=num_clusters, confidence=confidence,
        )  # fmt: skip
    return around(
        mean(numbers),
        standard_error(numbers) if labels is None else clustered_standard_error(numbers, labels),
        n=len(numbers),
        freedom=(len(numbers) if num_clusters is None else num_clusters) - 1,
        num_asked=len(values),
        num_clusters=num_clusters,
        confidence=confidence,
    )
