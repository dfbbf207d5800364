"""From what a judge says to how often it is right: Platt's curve, or any rising one (isotonic).

Fit on labelled answers and use on others: on its own data every fit looks calibrated. Isotonic wants hundreds of
labels; with few, Platt's two numbers are steadier.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence

import numpy as np
import scipy

from evals.statistics.calibration import check
from evals.statistics.distributions import expit

MAX_STEPS = 100
CLOSE_ENOUGH = 1e-10

Curve = Callable[[float], float]


def isotonic(predictions: Sequence[float], outcomes: Sequence[bool]) -> Curve | None:
    """The rising curve of least squares (pool adjacent violators), straight between its points, flat beyond them.

    None without data. Equal predictions are one point, at the mean of their outcomes.
    """
    check(predictions, outcomes)
    if not predictions:
        return None
    points, which, times = np.unique(np.asarray(predictions, dtype=float), return_inverse=True, return_counts=True)
    means = np.bincount(which, weights=np.asarray(outcomes, dtype=float)) / times
    heights = scipy.optimize.isotonic_regression(means, weights=times.astype(float)).x
    places, values = points.tolist(), heights.tolist()

    def curve(prediction: float) -> float:
        right = bisect_right(places, prediction)
        if right == 0:
            return float(values[0])
        if right == len(places):
            return float(values[-1])
        part = (prediction - places[right - 1]) / (places[right] - places[right - 1])
        return float(values[right - 1] + part * (values[right] - values[right - 1]))

    return curve


def platt(scores: Sequence[float], outcomes: Sequence[bool]) -> Curve | None:
    """P(true) = logistic(a * score + b) of greatest likelihood, with Platt's (1999) targets.

    Targets (n+ + 1) / (n+ + 2) and 1 / (n- + 2) instead of 1 and 0 keep the curve finite when the scores separate the
    outcomes. Any scores, not only probabilities. None where all outcomes, or all scores, are the same.
    """
    if len(scores) != len(outcomes):
        raise ValueError(f"{len(scores)} scores, {len(outcomes)} outcomes; send one of each")
    x, y = np.asarray(scores, dtype=float), np.asarray(outcomes, dtype=bool)
    if not 0 < y.sum() < len(y) or x.min() == x.max():
        return None
    target = np.where(y, (y.sum() + 1) / (y.sum() + 2), 1 / ((~y).sum() + 2))
    centre, scale = float(x.mean()), float(x.std())
    design, weights = np.column_stack([np.ones(len(x)), (x - centre) / scale]), np.zeros(2)
    for _ in range(MAX_STEPS):
        chance = expit(design @ weights)
        curvature = design.T @ (design * (chance * (1 - chance))[:, None])
        step = np.linalg.solve(curvature, design.T @ (target - chance))
        weights = weights + step * min(1.0, 2.0 / max(float(np.abs(step).max()), CLOSE_ENOUGH))
        if np.abs(step).max() < CLOSE_ENOUGH:
            break
    level, slope = float(weights[0]), float(weights[1])
    return lambda score: float(expit(level + slope * (score - centre) / scale))
