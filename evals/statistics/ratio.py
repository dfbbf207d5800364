"""The ratio of two sums over clusters, as dollars over accepted turns, with an interval that stays above 0.

    R = sum y / sum x        SE(R) = sqrt(G/(G-1) sum over clusters of (y_g - R x_g)^2) / sum x

Both sums are uncertain and go together, which a plain division does not know. Cochran, Sampling Techniques, 6.3. The
interval is R * exp(-+ t SE / R), t with G - 1 degrees of freedom: a cost cannot be below 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from evals.statistics.distributions import stdtrit
from evals.statistics.estimate import CONFIDENCE, Kind

INTERVAL = Kind.LOG_CLUSTERED_T


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
    """Example: clusters (y, x) of (1, 1), (2, 1), (3, 4) -> R 1, SE sqrt(3/2 * (0 + 1 + 1)) / 6 = .2887"""

    value: float
    se: float | None  # None: fewer than two clusters, or the value is 0
    low: float | None
    high: float | None
    num_clusters: int


def ratio(clusters: Sequence[tuple[float, float]], *, confidence: float = CONFIDENCE) -> Ratio | None:
    """Of (y, x) for each cluster; both from 0 on. None where the x add up to nothing."""
    below = math.fsum(x for _, x in clusters)
    if not below:
        return None
    value = math.fsum(y for y, _ in clusters) / below
    num = len(clusters)
    if num < 2 or not value:
        return Ratio(value=value, se=None, low=None, high=None, num_clusters=num)
    squares = math.fsum((y - value * x) ** 2 for y, x in clusters)
    se = math.sqrt(num / (num - 1) * squares) / below
    factor = math.exp(float(stdtrit(num - 1, (1 + confidence) / 2)) * se / value)
    return Ratio(value=value, se=se, low=value / factor, high=value * factor, num_clusters=num)
