"""Strengths from pairwise results: P(i beats j) = 1 / (1 + exp(strength_j - strength_i)), a tie being half a win.

Who never lost, or never won, has no finite strength: the ranking is then undefined, and says why. A ridge always gives
an answer, pulled towards the middle. Errors are the sandwich's, clustered by whatever ties results together (a prompt,
a user), because with half wins the inverse Hessian alone is wrong. Where the clusters cancel out (all ties, or every
prompt split evenly) the sandwich is 0, which says nothing about the error: it is then not known.

Not here: the rate of one side against another (wins).
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from evals.statistics.battles import Battles, Numbers, battles
from evals.statistics.distributions import expit, ndtri
from evals.statistics.estimate import CONFIDENCE, Estimate, Kind, unknown

ELO_MIDDLE = 1000.0
ELO_PER_LOGIT = 400 / math.log(10)
RIDGE = 0.5  # adds .25 * sum of strengths squared to the loss
MAX_STEPS = 100
CLOSE_ENOUGH = 1e-12
MOST_DENSE = 10_000_000  # numbers in a table of clusters and sides, 80 MB; a larger one is kept sparse
LEAST_ERROR = 1e-6  # in log odds; what rounding leaves of a sandwich of 0 is smaller, an error of data is not


@dataclass(frozen=True, kw_only=True, slots=True)
class Game:
    """One result between two sides; a swapped pair of judgements must already be one result."""

    left: str
    right: str
    result: float  # 1 left won, .5 tie, 0 right won
    cluster: Hashable = None  # what ties results together; None stands for itself


@dataclass(frozen=True, kw_only=True, slots=True)
class Strength:
    """One side's place. Example: strength .58 is Elo 1000 + 173.7 * .58 = 1101."""

    name: str
    strength: float  # log odds, centred: the mean over all sides is 0
    elo: float
    elo_low: float | None  # None where the error cannot be known
    elo_high: float | None
    se: float | None  # of `strength`
    num_games: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """All sides, strongest first; empty when undefined."""

    rows: tuple[Strength, ...]
    undefined: str  # why there is no finite maximum; empty when there is one
    ridge: float  # 0: plain maximum likelihood
    num_games: int
    num_clusters: int
    interval: Kind = Kind.SANDWICH
    confidence: float = CONFIDENCE

    def estimate(self, name: str) -> Estimate:
        """One side on the Elo scale as every other number; n is its games, the clusters are the ranking's."""
        row = next((row for row in self.rows if row.name == name), None)
        if row is None:
            return unknown(self.undefined or f"{name} met nobody", confidence=self.confidence)
        why = "" if row.se is not None else "the clusters cancel out or are one, which says nothing about the error"
        return Estimate(
            value=row.elo, se=None if row.se is None else ELO_PER_LOGIT * row.se, low=row.elo_low, high=row.elo_high,
            interval=Kind.NONE if why else self.interval, confidence=self.confidence, n=row.num_games,
            num_asked=row.num_games, num_clusters=self.num_clusters, undefined=why,
        )  # fmt: skip


def rank(
    games: Sequence[Game], *, ridge: float = 0.0, confidence: float = CONFIDENCE, small_sample: bool = True
) -> Ranking:
    """Fit all strengths at once. Without a ridge, sides that are not joined by wins both ways leave it undefined.

    `small_sample` multiplies errors by sqrt(G/(G-1)) for G clusters; published strengths leave it out.
    """
    columns = battles(
        [game.left for game in games],
        [game.right for game in games],
        [game.result for game in games],
        cluster=[game.cluster for game in games],
    )
    return rank_battles(columns, ridge=ridge, confidence=confidence, small_sample=small_sample)


def rank_battles(
    played: Battles,
    *,
    ridge: float = 0.0,
    confidence: float = CONFIDENCE,
    small_sample: bool = True,
    errors: Kind = Kind.SANDWICH,
) -> Ranking:
    """As `rank`, on columns. `errors` HESSIAN gives the inverse Hessian's, to compare with tools that print those."""
    if errors not in (Kind.SANDWICH, Kind.HESSIAN):
        raise ValueError(f"errors are {Kind.SANDWICH} or {Kind.HESSIAN}, not {errors}")
    wins = _wins(played)
    why = "no decided comparison yet" if not len(played) else _separation(wins, played.names) if ridge == 0 else ""
    facts = {"num_games": len(played), "num_clusters": played.num_clusters}
    if why:
        return Ranking(rows=(), undefined=why, ridge=ridge, interval=errors, confidence=confidence, **facts)
    strengths = maximum(wins, ridge=ridge)
    factor, are_known = 1.0, True
    if errors == Kind.HESSIAN:
        found = np.sqrt(np.clip(np.diag(_bread(wins, strengths, ridge)), 0, None))
    else:
        found = _sandwich(played, wins, strengths, ridge)
        are_known = played.num_clusters > 1
        factor = math.sqrt(played.num_clusters / (played.num_clusters - 1)) if small_sample and are_known else 1.0
    z = float(ndtri(0.5 + confidence / 2))
    counts = np.bincount(played.left, minlength=len(wins)) + np.bincount(played.right, minlength=len(wins))
    rows = [
        _row(name, strength, factor * error if are_known and error > LEAST_ERROR else None, z=z, num_games=num_games)
        for name, strength, error, num_games in zip(
            played.names, strengths.tolist(), found.tolist(), counts.tolist(), strict=True
        )
    ]
    rows.sort(key=lambda row: (-row.strength, row.name))
    return Ranking(rows=tuple(rows), undefined="", ridge=ridge, interval=errors, confidence=confidence, **facts)


def bootstrap_errors(played: Battles, *, resamples: int = 200, seed: int = 0, ridge: float = 0.0) -> Numbers | None:
    """Standard deviation of each strength over resampled clusters, in the order of `played.names`.

    None where some resample has no finite strengths: the errors that are left would be those of the lucky ones. A ridge
    always gives an answer.
    """
    rng, num_names = np.random.default_rng(seed), len(played.names)
    cluster = np.arange(len(played)) if played.cluster is None else played.cluster
    found = np.empty((resamples, num_names))
    for index in range(resamples):
        drawn = np.bincount(rng.integers(played.num_clusters, size=played.num_clusters), minlength=played.num_clusters)
        wins = _wins(played, drawn[cluster].astype(float))
        if ridge == 0 and _separation(wins, played.names):
            return None
        found[index] = maximum(wins, ridge=ridge)
    errors: Numbers = found.std(axis=0, ddof=1)
    return errors


def maximum(wins: Numbers, *, ridge: float = 0.0) -> Numbers:
    """Centred strengths of the greatest likelihood by Newton's method; [i, j] are wins of i over j, ties as halves.

    Without a ridge the wins must join all sides both ways.
    """
    played, own = wins + wins.T, wins.sum(axis=1)
    strengths = np.zeros(len(wins))
    for _ in range(MAX_STEPS):
        chance = expit(strengths[:, None] - strengths[None, :])
        gradient = own - (played * chance).sum(axis=1) - ridge * strengths
        factor = scipy.linalg.cho_factor(_curvature(played * chance * (1 - chance), ridge))
        step = scipy.linalg.cho_solve(factor, gradient)
        # A long step may leave where the quadratic holds; the likelihood is concave, so short ones always get there.
        strengths = strengths + step * min(1.0, 2.0 / max(np.abs(step).max(), CLOSE_ENOUGH))
        if np.abs(step).max() < CLOSE_ENOUGH:
            break
    return strengths - strengths.mean()


def _curvature(weight: Numbers, ridge: float) -> Numbers:
    """Minus the second derivative, made invertible: the direction in which all strengths move together is added."""
    laplacian: Numbers = np.diag(weight.sum(axis=1)) - weight
    return laplacian + ridge * np.eye(len(weight)) + 1 / len(weight)


def _bread(wins: Numbers, strengths: Numbers, ridge: float) -> Numbers:
    """Inverse of minus the second derivative among centred strengths."""
    chance = expit(strengths[:, None] - strengths[None, :])
    curvature = _curvature((wins + wins.T) * chance * (1 - chance), ridge)
    inverse: Numbers = scipy.linalg.cho_solve(scipy.linalg.cho_factor(curvature), np.eye(len(wins)))
    return inverse - 1 / (len(wins) * (ridge + 1))


def _sandwich(played: Battles, wins: Numbers, strengths: Numbers, ridge: float) -> Numbers:
    bread = _bread(wins, strengths, ridge)
    variances = ((bread @ _meat(played, strengths)) * bread).sum(axis=1)  # the diagonal of bread, meat, bread
    return np.sqrt(np.clip(variances, 0, None))


def _meat(played: Battles, strengths: Numbers) -> Numbers:
    """Sum over clusters of the outer product of the cluster's score."""
    size = len(strengths)
    surprise = played.result - expit(strengths[played.left] - strengths[played.right])
    if played.cluster is None:
        pairs = np.bincount(played.left * size + played.right, surprise**2, minlength=size * size)
        squares: Numbers = pairs.reshape(size, size).astype(float)
        squares = squares + squares.T
        return np.diag(squares.sum(axis=1)) - squares
    rows, sides = np.tile(played.cluster, 2), np.concatenate([played.left, played.right])
    shape, surprises = (played.num_clusters, size), np.concatenate([surprise, -surprise])
    if played.num_clusters * size <= MOST_DENSE:
        scores = np.bincount(rows * size + sides, surprises, minlength=shape[0] * size).reshape(shape)
        return np.asarray(scores.T @ scores, dtype=float)
    # Many clusters are small, so their rows are short.
    few = scipy.sparse.csr_matrix((surprises, (rows, sides)), shape=shape)
    meat: Numbers = (few.T @ few).toarray()
    return meat


def _row(name: str, strength: float, error: float | None, *, z: float, num_games: int) -> Strength:
    elo = ELO_MIDDLE + ELO_PER_LOGIT * strength
    half_width = None if error is None else ELO_PER_LOGIT * z * error
    return Strength(
        name=name,
        strength=strength,
        elo=elo,
        elo_low=None if half_width is None else elo - half_width,
        elo_high=None if half_width is None else elo + half_width,
        se=error,
        num_games=num_games,
    )


def _separation(wins: Numbers, names: Sequence[str]) -> str:
    """Ford's condition: in every split into two groups, some member of each has won against one of the other."""
    graphs = scipy.sparse.csgraph
    _, group = graphs.connected_components(scipy.sparse.csr_matrix(wins + wins.T > 0), directed=False)
    if group.max() > 0:
        apart = [name for name, number in zip(names, group, strict=True) if number != group[0]]
        return f"no result ties {_listed(apart)} to {names[0]}"
    beaten = scipy.sparse.csr_matrix(wins > 0)
    num_strong, strong = graphs.connected_components(beaten, directed=True, connection="strong")
    if num_strong == 1:
        return ""
    unbeaten = [name for name, lost in zip(names, wins.sum(axis=0), strict=True) if lost == 0]
    winless = [name for name, won in zip(names, wins.sum(axis=1), strict=True) if won == 0]
    if unbeaten:
        return f"{_listed(unbeaten)} never lost, not even half"
    if winless:
        return f"{_listed(winless)} never won, not even half"
    first = [name for name, number in zip(names, strong, strict=True) if number == strong[0]]
    return f"all results between {_listed(first)} and the others went one way"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _wins(played: Battles, weight: Numbers | None = None) -> Numbers:
    """[i, j]: wins of i over j, ties as halves; `weight` counts a battle more than once."""
    size = len(played.names)
    won = played.result if weight is None else played.result * weight
    lost = (1.0 if weight is None else weight) - won
    wins: Numbers = np.bincount(played.left * size + played.right, won, minlength=size * size).astype(float)
    wins += np.bincount(played.right * size + played.left, lost, minlength=size * size)
    return wins.reshape(size, size)
