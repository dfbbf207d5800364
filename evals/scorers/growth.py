"""How fast cost grows with size, from measurements: the exponent b of cost = a x size^b. Pure.

Least squares of log cost on log size; the interval is Student's t with (points - 2) degrees of freedom, at 95 %.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evals.statistics.distributions import stdtrit

MIN_SIZES = 4
CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """An estimate between its limits."""

    estimate: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    def to_json(self) -> dict[str, float]:
        return {"estimate": round(self.estimate, 4), "low": round(self.low, 4), "high": round(self.high, 4)}


def growth_exponent(sizes: Sequence[float], costs: Sequence[float]) -> Interval | None:
    """None with fewer than MIN_SIZES different sizes; costs must be positive.

    Example: sizes 1, 10, 100, 1000 with costs 2, 200, 20000, 2000000 -> 2, from 2 to 2
    """
    if len(set(sizes)) < MIN_SIZES:
        return None
    x, y = np.log(np.asarray(sizes, float)), np.log(np.asarray(costs, float))
    x = x - x.mean()
    spread = float(x @ x)
    slope = float(x @ y) / spread
    residuals = y - y.mean() - slope * x
    error = math.sqrt(max(float(residuals @ residuals), 0.0) / (len(x) - 2) / spread)
    half_width = float(stdtrit(len(x) - 2, 0.5 + CONFIDENCE / 2)) * error
    return Interval(estimate=slope, low=slope - half_width, high=slope + half_width)


def ratio_of(numerators: Sequence[float], denominators: Sequence[float]) -> Interval:
    """Geometric mean of paired ratios with a t interval of their logarithms; at least two pairs, all positive."""
    logs = np.log(np.asarray(numerators, float) / np.asarray(denominators, float))
    mean = float(logs.mean())
    half_width = float(stdtrit(len(logs) - 1, 0.5 + CONFIDENCE / 2)) * float(logs.std(ddof=1)) / math.sqrt(len(logs))
    return Interval(estimate=math.exp(mean), low=math.exp(mean - half_width), high=math.exp(mean + half_width))
