"""Ratings that move with every result, for watching drift on live traffic; never for ranking.

Elo's update: r += k * (result - expected), expected = 1 / (1 + 10^((other - own) / 400)). What comes out depends on the
order of the results, so two runs over the same votes disagree: `bradley_terry` ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """Every side's rating at some points on the way. Example: places (1, 2), ratings {"a": (1002.0, 1004.0), ...}"""

    places: tuple[int, ...]  # results so far
    ratings: dict[str, tuple[float, ...]]


def snapshots(played: Battles, *, at_most: int = 60, k: float = K, start: float = START) -> Drift:
    """All ratings after every so many results, and after the last; nothing of no results."""
    ratings, places, seen = [start] * len(played.names), [], []
    every = max(1, -(-len(played) // at_most))
    columns = zip(played.left.tolist(), played.right.tolist(), played.result.tolist(), strict=True)
    for place, (left, right, result) in enumerate(columns, start=1):
        change = k * (result - 1 / (1 + 10 ** ((ratings[right] - ratings[left]) / SCALE)))
        ratings[left] += change
        ratings[right] -= change
        if place % every == 0 or place == len(played):
            places.append(place)
            seen.append(tuple(ratings))
    by_side = zip(*seen, strict=True)
    return Drift(places=tuple(places), ratings=dict(zip(played.names, by_side, strict=True)) if seen else {})


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
