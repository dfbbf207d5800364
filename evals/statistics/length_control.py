"""The win rate a model would have had with answers as long as the baseline's.

Dubois et al., "Length-Controlled AlpacaEval" (arXiv 2404.04475): with d the baseline's length minus the model's,
    logit P(model preferred) = model + length * tanh(d / sd(d)) + difficulty weight * difficulty of the instruction;
the length term is then set to 0 and the probabilities are averaged. Published weights were fitted beside answers that
game the length term; those are not public, so a fit of one's own has no such regulariser and is another number.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from evals.statistics.estimate import CONFIDENCE, Estimate, finite, unknown
from evals.statistics.means import estimate_mean

MAX_STEPS = 200
CLOSE_ENOUGH = 1e-9  # of a Newton step: the next one would be its square
MOST_UNEVEN = 1e12  # condition of a curvature whose inverse is still worth something

Vector = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """Of one model against one baseline."""

    model: float  # log odds at equal length and difficulty 0
    length: float
    difficulty: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LengthControlled:
    """The rate, and how it was made: two labels are two different numbers."""

    rate: Estimate  # its error is the spread over instructions, not that of the weights
    weights: Weights | None
    label: str  # "LC (published weights)" or "LC (no regulariser)"


def apply_weights(
    weights: Weights, difficulty: Sequence[float], *, confidence: float = CONFIDENCE, label: str = "published weights"
) -> LengthControlled:
    """Mean over instructions of logistic(model + difficulty weight * difficulty): the length term is 0."""
    chance = expit(weights.model + weights.difficulty * finite(difficulty, what="difficulty"))
    rate = estimate_mean(chance.tolist(), confidence=confidence)
    return LengthControlled(rate=rate, weights=weights, label=f"LC ({label})")


def fit(
    preferences: Sequence[float],
    *,
    length_baseline: Sequence[int],
    length_model: Sequence[int],
    difficulty: Sequence[float],
    confidence: float = CONFIDENCE,
) -> LengthControlled:
    """Maximum likelihood on soft preferences in [0, 1], then `apply_weights`.

    Undefined where all answers differ by the same length, where the three terms cannot be told apart, or where no
    finite weights fit best (one side is always preferred).
    """
    gap = finite(length_baseline, what="length") - finite(length_model, what="length")
    preference, hard = finite(preferences, what="preference"), finite(difficulty, what="difficulty")
    if not len(preference) == len(gap) == len(hard):
        raise ValueError(
            f"{len(preference)} preferences, {len(gap)} lengths, {len(hard)} difficulties: send one of each"
        )
    if not np.all((preference >= 0) & (preference <= 1)):
        raise ValueError("preferences lie in [0, 1]; leave out those that are null")
    if len(gap) < 2 or gap.std(ddof=1) == 0:
        return _undefined("every answer differs from the baseline's by the same length", len(gap), confidence)
    design = np.column_stack([np.ones(len(gap)), np.tanh(gap / gap.std(ddof=1)), hard])
    if np.linalg.matrix_rank(design) < design.shape[1]:
        return _undefined("length and difficulty cannot be told apart on these instructions", len(gap), confidence)
    found = _maximum(design, preference)
    if found is None:
        return _undefined("no finite weights fit best: one side is always preferred", len(gap), confidence)
    model, length, weight = found.tolist()
    weights = Weights(model=model, length=length, difficulty=weight)
    return apply_weights(weights, difficulty, confidence=confidence, label="no regulariser")


def _undefined(why: str, num_asked: int, confidence: float) -> LengthControlled:
    rate = unknown(why, num_asked=num_asked, confidence=confidence)
    return LengthControlled(rate=rate, weights=None, label="LC (no regulariser)")


def _maximum(design: Vector, preference: Vector) -> Vector | None:
    """Newton's method with shortened steps; None where it does not settle."""
    weights = np.zeros(design.shape[1])
    for _ in range(MAX_STEPS):
        chance = expit(design @ weights)
        curvature = design.T @ (design * (chance * (1 - chance))[:, None])
        if np.linalg.cond(curvature) > MOST_UNEVEN:
            return None
        step = np.linalg.solve(curvature, design.T @ (preference - chance))
        longest = float(np.abs(step).max())
        weights = weights + step * min(1.0, 2.0 / max(longest, CLOSE_ENOUGH))
        if longest < CLOSE_ENOUGH * max(1.0, float(np.abs(weights).max())):
            return weights
    return None
