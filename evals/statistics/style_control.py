"""Strengths with the taste for style taken out: who would win if both answers looked alike.

Bradley-Terry with covariates: logit P(left wins) = strength_left - strength_right + sum of weight * style difference. A
difference is (a - b) / (a + b) of a length or of a count of headers, lists or bold, over its root mean square (0 is the
middle, so that naming the sides the other way round changes nothing). LMSYS, "Does style matter?" (2024).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy  # its parts are loaded when they are named

from evals.statistics.battles import Battles, Numbers
from evals.statistics.distributions import expit, ndtri
from evals.statistics.estimate import CONFIDENCE, Estimate, Kind, finite, unknown

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

MAX_STEPS = 100
CLOSE_ENOUGH = 1e-9  # of a Newton step: the next one would be its square
MOST_UNEVEN = 1e12  # condition of a curvature whose inverse is still worth something
RIDGE = 0.5  # FastChat's, on strengths and style alike


@dataclass(frozen=True, kw_only=True, slots=True)
class StyleControlled:
    """All in log odds; strengths are centred. With a ridge the errors belong to the pulled values."""

    strengths: Mapping[str, Estimate]
    style: Mapping[str, Estimate]  # log odds of winning for one root mean square more of it
    ridge: float


def style_difference(left: Sequence[float], right: Sequence[float]) -> list[float]:
    """(a - b) / (a + b) per battle, 0 where neither side has any. Example: 300 against 100 words -> .5"""
    if len(left) != len(right):
        raise ValueError(f"{len(left)} left, {len(right)} right: send one of each per battle")
    return [(a - b) / (a + b) if a + b else 0.0 for a, b in zip(left, right, strict=True)]


def control(
    played: Battles,
    styles: Mapping[str, Sequence[float]],
    *,
    ridge: float = RIDGE,
    confidence: float = CONFIDENCE,
) -> StyleControlled:
    """Fit strengths and style together; errors are the sandwich's, by the battles' clusters, with G/(G-1).

    Raises ValueError for a style that never differs (there is nothing to control, and its scale would be 0). Without a
    ridge, data that one side or one style separates leave all of it undefined.
    """
    columns = []
    for name, values in styles.items():
        column = finite(values, what=f"difference in {name}")
        if len(column) != len(played):
            raise ValueError(f"{name} has {len(column)} differences for {len(played)} battles")
        scale = math.sqrt(float((column**2).mean())) if len(column) else 0.0
        if scale == 0:
            raise ValueError(f"{name} never differs between the two sides; leave it out")
        columns.append(column / scale)
    design = _design(played, columns)
    found = _maximum(design, played.result, len(played.names), ridge) if len(played) else None
    if found is None:
        why = "no finite strengths fit best; a ridge always gives an answer" if len(played) else "no data"
        nothing = unknown(why, n=len(played), num_clusters=played.num_clusters, confidence=confidence)
        return StyleControlled(
            strengths=dict.fromkeys(played.names, nothing), style=dict.fromkeys(styles, nothing), ridge=ridge
        )
    fitted, bread = found
    errors = _errors(design, played, fitted, bread)
    counts = np.bincount(played.left, minlength=len(played.names)) + np.bincount(
        played.right, minlength=len(played.names)
    )
    sizes = [*counts.tolist(), *[len(played)] * len(styles)]
    z = float(ndtri(0.5 + confidence / 2))
    estimates = [
        _estimate(value, error, n, played.num_clusters, z=z, confidence=confidence)
        for value, error, n in zip(fitted.tolist(), errors, sizes, strict=True)
    ]
    return StyleControlled(
        strengths=dict(zip(played.names, estimates, strict=False)),
        style=dict(zip(styles, estimates[len(played.names) :], strict=True)),
        ridge=ridge,
    )


def _design(played: Battles, columns: Sequence[Numbers]) -> "csr_matrix":
    """Per battle: 1 for the left side, -1 for the right, then the styles."""
    rows, ones = np.arange(len(played)), np.ones(len(played))
    sides = scipy.sparse.csr_matrix(
        (np.concatenate([ones, -ones]), (np.tile(rows, 2), np.concatenate([played.left, played.right]))),
        shape=(len(played), len(played.names)),
    )
    if not columns:
        return sides
    return scipy.sparse.csr_matrix(scipy.sparse.hstack([sides, scipy.sparse.csr_matrix(np.column_stack(columns))]))


def _curvature(design: "csr_matrix", chance: Numbers, num_names: int, ridge: float) -> Numbers:
    weighted = design.multiply((chance * (1 - chance))[:, None])
    curvature: Numbers = (design.T @ weighted).toarray() + ridge * np.eye(design.shape[1])
    curvature[:num_names, :num_names] += 1 / num_names  # the direction in which all strengths move together
    return curvature


def _maximum(design: "csr_matrix", result: Numbers, num_names: int, ridge: float) -> tuple[Numbers, Numbers] | None:
    """Values with centred strengths, and the inverse curvature; None where it does not settle."""
    values = np.zeros(design.shape[1])
    for _ in range(MAX_STEPS):
        chance = expit(design @ values)
        curvature = _curvature(design, chance, num_names, ridge)
        if np.linalg.cond(curvature) > MOST_UNEVEN:
            return None
        factor = scipy.linalg.cho_factor(curvature)
        step = scipy.linalg.cho_solve(factor, design.T @ (result - chance) - ridge * values)
        longest = float(np.abs(step).max())
        values = values + step * min(1.0, 2.0 / max(longest, CLOSE_ENOUGH))
        if longest < CLOSE_ENOUGH * max(1.0, float(np.abs(values).max())):
            values[:num_names] -= values[:num_names].mean()
            return values, scipy.linalg.cho_solve(factor, np.eye(len(values)))
    return None


def _errors(design: "csr_matrix", played: Battles, values: Numbers, bread: Numbers) -> list[float | None]:
    if played.num_clusters < 2:
        return [None] * len(values)
    scores = scipy.sparse.csr_matrix(design.multiply((played.result - expit(design @ values))[:, None]))
    if played.cluster is not None:
        ones, order = np.ones(len(played)), np.arange(len(played))
        shape = (played.num_clusters, len(played))
        scores = scipy.sparse.csr_matrix((ones, (played.cluster, order)), shape=shape) @ scores
    covariance = bread @ (scores.T @ scores).toarray() @ bread
    factor = played.num_clusters / (played.num_clusters - 1)
    errors: list[float | None] = np.sqrt(factor * np.clip(np.diag(covariance), 0, None)).tolist()
    return errors


def _estimate(value: float, error: float | None, n: int, num_clusters: int, *, z: float, confidence: float) -> Estimate:
    if not error:
        why = "the clusters cancel out or are one, which says nothing about the error"
        return unknown(why, value=value, se=error, n=n, num_clusters=num_clusters, confidence=confidence)
    return Estimate(
        value=value, se=error, low=value - z * error, high=value + z * error, interval=Kind.SANDWICH,
        confidence=confidence, n=n, num_asked=n, num_clusters=num_clusters,
    )  # fmt: skip
