"""The win rate a model would have had with answers as long as the baseline's.

Dubois et al., "Length-Controlled AlpacaEval" (arXiv 2404.04475): with d the baseline's length minus the model's,
    logit P(model preferred) = model + length * tanh(d / sd(d)) + difficulty weight * difficulty of the instruction;
the length term is then set to 0 and the probabilities are averaged. Published weights were fitted beside answers that
game the length term; those are not public, so a fit of one's own has no such regulariser and is another number. Where
no difficulty is known there is a third, of the length alone: every instruction then has the same chance, and its error
is that of the fit.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from evals.statistics.distributions import expit, ndtri
from evals.statistics.estimate import CONFIDENCE, Estimate, Kind, finite, unknown
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

    rate: (
        Estimate  # its error is the spread over instructions, not that of the weights; of "length only" that of the fit
    )
    weights: Weights | None
    label: str  # "LC (published weights)", "LC (no regulariser)" or "LC (length only)"


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


def fit_length_only(
    preferences: Sequence[float],
    *,
    length_baseline: Sequence[float],
    length_model: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    confidence: float = CONFIDENCE,
) -> LengthControlled:
    """logit P(model preferred) = model + length * tanh(d / sd(d)); the rate is logistic(model).

    The interval is the sandwich's on the log odds, by clusters with G/(G-1), brought to the rate. Undefined as `fit`.
    """
    label = "length only"
    gap = finite(length_baseline, what="length") - finite(length_model, what="length")
    preference = finite(preferences, what="preference")
    if not len(preference) == len(gap):
        raise ValueError(f"{len(preference)} preferences, {len(gap)} lengths: send one of each")
    if not np.all((preference >= 0) & (preference <= 1)):
        raise ValueError("preferences lie in [0, 1]; leave out those that are null")
    if len(gap) < 2 or gap.std(ddof=1) == 0:
        return _undefined("every answer differs from the baseline's by the same length", len(gap), confidence, label)
    design = np.column_stack([np.ones(len(gap)), np.tanh(gap / gap.std(ddof=1))])
    found = _maximum(design, preference)
    if found is None:
        return _undefined("no finite weights fit best: one side is always preferred", len(gap), confidence, label)
    numbered: dict[Hashable, int] = {}
    owners = range(len(gap)) if clusters is None else [numbered.setdefault(one, len(numbered)) for one in clusters]
    rate = _rate_of_log_odds(design, preference, found, np.asarray(owners), confidence)
    if clusters is None:
        rate = replace(rate, num_clusters=None)
    model, length = found.tolist()
    weights = Weights(model=model, length=length, difficulty=0.0)
    return LengthControlled(rate=rate, weights=weights, label=f"LC ({label})")


def _rate_of_log_odds(
    design: Vector, preference: Vector, weights: Vector, owners: NDArray[np.int64], confidence: float
) -> Estimate:
    """logistic(first weight) with its sandwich interval; `owners` numbers the clusters."""
    chance = expit(design @ weights)
    bread = np.linalg.inv(design.T @ (design * (chance * (1 - chance))[:, None]))
    num_clusters, n, rate = int(owners.max()) + 1, len(preference), float(expit(weights[0]))
    scores = np.zeros((num_clusters, design.shape[1]))
    np.add.at(scores, owners, design * (preference - chance)[:, None])
    factor = num_clusters / max(1, num_clusters - 1)
    error = math.sqrt(max(0.0, factor * float((bread @ scores.T @ scores @ bread)[0, 0])))
    if num_clusters < 2 or not error:
        why = "the clusters cancel out or are one, which says nothing about the error"
        return unknown(why, value=rate, n=n, num_clusters=num_clusters, confidence=confidence)
    half = float(ndtri(0.5 + confidence / 2)) * error
    return Estimate(
        value=rate, se=rate * (1 - rate) * error, low=float(expit(weights[0] - half)),
        high=float(expit(weights[0] + half)), interval=Kind.SANDWICH, confidence=confidence, n=n, num_asked=n,
        num_clusters=num_clusters,
    )  # fmt: skip


def _undefined(why: str, num_asked: int, confidence: float, label: str = "no regulariser") -> LengthControlled:
    rate = unknown(why, num_asked=num_asked, confidence=confidence)
    return LengthControlled(rate=rate, weights=None, label=f"LC ({label})")


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
