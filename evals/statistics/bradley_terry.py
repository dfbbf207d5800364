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
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from scipy.special import expit, ndtri

ELO_MIDDLE = 1000.0
ELO_PER_LOGIT = 400 / math.log(10)
RIDGE = 0.5  # adds .25 * sum of strengths squared to the loss
MAX_STEPS = 100
CLOSE_ENOUGH = 1e-12
LEAST_ERROR = 1e-6  # in log odds; what rounding leaves of a sandwich of 0 is smaller, an error of data is not

Matrix = NDArray[np.float64]


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
    interval: str = "sandwich"


def rank(games: Sequence[Game], *, ridge: float = 0.0, confidence: float = 0.95, small_sample: bool = True) -> Ranking:
    """Fit all strengths at once. Without a ridge, sides that are not joined by wins both ways leave it undefined.

    `small_sample` multiplies errors by sqrt(G/(G-1)) for G clusters; published strengths leave it out.
    """
    names = sorted({name for game in games for name in (game.left, game.right)})
    clusters = {game.cluster if game.cluster is not None else ("alone", index) for index, game in enumerate(games)}
    why = "no decided comparison yet" if not games else _separation(games, names) if ridge == 0 else ""
    if why:
        return Ranking(rows=(), undefined=why, ridge=ridge, num_games=len(games), num_clusters=len(clusters))
    strengths, errors = _fit(games, names, ridge)
    z = float(ndtri(0.5 + confidence / 2))
    factor = math.sqrt(len(clusters) / (len(clusters) - 1)) if small_sample and len(clusters) > 1 else 1.0
    counts = {name: sum(name in (game.left, game.right) for game in games) for name in names}
    rows = [
        _row(
            name,
            strength,
            factor * error if len(clusters) > 1 and error > LEAST_ERROR else None,
            z=z,
            num_games=counts[name],
        )
        for name, strength, error in zip(names, strengths.tolist(), errors.tolist(), strict=True)
    ]
    rows.sort(key=lambda row: (-row.strength, row.name))
    return Ranking(rows=tuple(rows), undefined="", ridge=ridge, num_games=len(games), num_clusters=len(clusters))


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


def _separation(games: Sequence[Game], names: Sequence[str]) -> str:
    """Ford's condition: in every split into two groups, some member of each has won against one of the other."""
    wins = _wins(games, names)
    _, group = connected_components(csr_matrix(wins + wins.T > 0), directed=False)
    if group.max() > 0:
        apart = [name for name, number in zip(names, group, strict=True) if number != group[0]]
        return f"no result ties {_listed(apart)} to {names[0]}"
    num_strong, strong = connected_components(csr_matrix(wins > 0), directed=True, connection="strong")
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


def _wins(games: Sequence[Game], names: Sequence[str]) -> Matrix:
    """[i, j]: wins of i over j, ties as halves."""
    place = {name: index for index, name in enumerate(names)}
    wins = np.zeros((len(names), len(names)))
    for game in games:
        i, j = place[game.left], place[game.right]
        wins[i, j] += game.result
        wins[j, i] += 1 - game.result
    return wins


def _fit(games: Sequence[Game], names: Sequence[str], ridge: float) -> tuple[Matrix, Matrix]:
    """Centred strengths and their sandwich errors, by Newton's method."""
    wins = _wins(games, names)
    played = wins + wins.T
    strengths = np.zeros(len(names))
    for _ in range(MAX_STEPS):
        chance = expit(strengths[:, None] - strengths[None, :])
        gradient = (wins - played * chance).sum(axis=1) - ridge * strengths
        step = np.linalg.pinv(_hessian(played, chance, ridge), hermitian=True) @ gradient
        # A long step may leave where the quadratic holds; the likelihood is concave, so short ones always get there.
        strengths = strengths + step * min(1.0, 2.0 / max(np.abs(step).max(), CLOSE_ENOUGH))
        if np.abs(step).max() < CLOSE_ENOUGH:
            break
    strengths = strengths - strengths.mean()
    chance = expit(strengths[:, None] - strengths[None, :])
    bread = np.linalg.pinv(_hessian(played, chance, ridge), hermitian=True)
    return strengths, np.sqrt(np.clip(np.diag(bread @ _meat(games, names, strengths) @ bread), 0, None))


def _hessian(played: Matrix, chance: Matrix, ridge: float) -> Matrix:
    """Minus the second derivative of the log likelihood."""
    weight = played * chance * (1 - chance)
    laplacian: Matrix = np.diag(weight.sum(axis=1)) - weight
    return laplacian + ridge * np.eye(len(played))


def _meat(games: Sequence[Game], names: Sequence[str], strengths: Matrix) -> Matrix:
    """Sum over clusters of the outer product of the cluster's score."""
    place = {name: index for index, name in enumerate(names)}
    scores: dict[Hashable, Matrix] = {}
    for index, game in enumerate(games):
        i, j = place[game.left], place[game.right]
        surprise = game.result - float(expit(strengths[i] - strengths[j]))
        cluster = game.cluster if game.cluster is not None else ("alone", index)
        score = scores.setdefault(cluster, np.zeros(len(names)))
        score[i] += surprise
        score[j] -= surprise
    stacked = np.array(list(scores.values()))
    meat: Matrix = stacked.T @ stacked
    return meat
