"""Ratings that move with every result, for watching drift on live traffic; never for ranking.

Elo's update: r += k * (result - expected), expected = 1 / (1 + 10^((other - own) / 400)). What comes out depends on the
order of the results, so two runs over the same votes disagree: `bradley_terry` ranks.
"""

from collections.abc import Sequence

from evals.statistics.battles import Battles

START = 1000.0
SCALE = 400.0
K = 4.0


def drift(played: Battles, *, k: float = K, start: float = START) -> dict[str, float]:
    """The rating of each side after all results, in their order."""
    ratings = [start] * len(played.names)
    for left, right, result in zip(played.left.tolist(), played.right.tolist(), played.result.tolist(), strict=True):
        expected = 1 / (1 + 10 ** ((ratings[right] - ratings[left]) / SCALE))
        ratings[left] += k * (result - expected)
        ratings[right] -= k * (result - expected)
    return dict(zip(played.names, ratings, strict=True))


def path(played: Battles, name: str, *, k: float = K, start: float = START) -> Sequence[float]:
    """One side's rating after each of its own results; empty when it met nobody."""
    ratings, seen = dict.fromkeys(played.names, start), []
    for left, right, result in zip(played.left.tolist(), played.right.tolist(), played.result.tolist(), strict=True):
        one, other = played.names[left], played.names[right]
        change = k * (result - 1 / (1 + 10 ** ((ratings[other] - ratings[one]) / SCALE)))
        ratings[one] += change
        ratings[other] -= change
        if name in (one, other):
            seen.append(ratings[name])
    return seen
