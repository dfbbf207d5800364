"""Less noise from what was known before: y - theta (x - mean x), theta = cov(x, y) / var(x).

Deng et al. (2013), "CUPED". x must have been measured before anyone saw the new side, else the adjustment takes part of
the effect away. The mean stays the same; the variance shrinks by 1 - rho^2.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evals.statistics.estimate import CONFIDENCE, Estimate, around, finite, unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class Adjusted:
    """Values after adjustment. Where x never varies nothing can be taken out: theta 0, rho None."""

    values: tuple[float, ...]
    theta: float
    rho: float | None  # correlation of x and y; None where one of them never varies
    variance_before: float | None  # ddof 1; None for fewer than two
    variance_after: float | None


def adjust(after: Sequence[float], before: Sequence[float]) -> Adjusted:
    """One pair per user (or item); raises ValueError on unequal lengths."""
    y, x = _pair(after, before)
    theta = _theta([(y, x)])
    adjusted = y - theta * (x - x.mean()) if len(y) else y
    varies = len(y) > 1 and x.std() > 0 and y.std() > 0
    return Adjusted(
        values=tuple(adjusted.tolist()),
        theta=theta,
        rho=float(np.corrcoef(x, y)[0, 1]) if varies else None,
        variance_before=float(y.var(ddof=1)) if len(y) > 1 else None,
        variance_after=float(adjusted.var(ddof=1)) if len(y) > 1 else None,
    )


def difference_of_arms(
    new: tuple[Sequence[float], Sequence[float]],
    old: tuple[Sequence[float], Sequence[float]],
    *,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """new - old of two randomised arms, each (after, before), one theta for both; normal interval."""
    arms = [_pair(*new), _pair(*old)]
    n = sum(len(y) for y, _ in arms)
    if min(len(y) for y, _ in arms) < 2:
        return unknown("an arm has fewer than two users", num_asked=n, confidence=confidence)
    theta = _theta(arms)
    middle = np.concatenate([x for _, x in arms]).mean()
    adjusted = [y - theta * (x - middle) for y, x in arms]
    se = math.sqrt(sum(float(one.var(ddof=1)) / len(one) for one in adjusted))
    return around(float(adjusted[0].mean() - adjusted[1].mean()), se, n=n, confidence=confidence)


def _pair(after: Sequence[float], before: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    if len(after) != len(before):
        raise ValueError(f"{len(after)} values after, {len(before)} before; send one of each per user")
    return finite(after, what="value after"), finite(before, what="value before")


def _theta(arms: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
    """Pooled within arms, so that an effect does not leak into it."""
    both = sum(float(((x - x.mean()) * (y - y.mean())).sum()) for y, x in arms if len(y))
    own = sum(float(((x - x.mean()) ** 2).sum()) for _, x in arms if len(x))
    return both / own if own else 0.0
