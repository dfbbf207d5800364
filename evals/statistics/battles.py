"""Many pairwise results as columns, ready for arithmetic: who, against whom, how it ended, and what ties results
together.

A result is 1 (left won), .5 (tie) or 0 (right won). Verdicts that are none (invalid, error) are left out by the caller
and counted there; an unknown word for a winner is refused, because whoever reads it as a tie moves every rating.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]
Numbers = NDArray[np.float64]
Key = TypeVar("Key", bound=Hashable)

WINNERS = {
    "left": 1.0, "model_a": 1.0, "a": 1.0, "x": 1.0,
    "right": 0.0, "model_b": 0.0, "b": 0.0, "y": 0.0,
    "tie": 0.5, "draw": 0.5, "both_bad": 0.5, "tie (bothbad)": 0.5,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Battles:
    """Columns of equal length. Example: names (a, b), left [0, 1], right [1, 0], result [1, .5]."""

    names: tuple[str, ...]  # sorted; every one met somebody
    left: Places  # places in `names`
    right: Places
    result: Numbers  # in [0, 1], from the left side's view
    cluster: Places | None  # number of the cluster, 0 to num_clusters - 1; None: each result stands for itself
    num_clusters: int

    def __len__(self) -> int:
        return len(self.result)


def battles(
    left: Sequence[str],
    right: Sequence[str],
    result: Sequence[float] | Numbers,
    *,
    cluster: Sequence[Hashable] | None = None,
) -> Battles:
    """From columns of names; a cluster of None stands for itself. Raises ValueError naming what does not fit."""
    scores = np.asarray(result, dtype=float)
    if not len(left) == len(right) == len(scores):
        raise ValueError(f"{len(left)} left, {len(right)} right, {len(scores)} results: send one of each per battle")
    if not np.all((scores >= 0) & (scores <= 1)):
        place = int(np.flatnonzero(~((scores >= 0) & (scores <= 1)))[0])
        raise ValueError(f"result {place} is {scores[place]}; use 1, .5 or 0 and leave out what was not decided")
    seen = _Numbering[str]()
    one, other = seen.of(left), seen.of(right)
    names = tuple(sorted(seen))
    place_of = np.empty(len(names), dtype=np.int64)
    place_of[[seen[name] for name in names]] = np.arange(len(names))
    one, other = place_of[one], place_of[other]
    if np.any(one == other):
        place = int(np.flatnonzero(one == other)[0])
        raise ValueError(f"battle {place} sets {left[place]} against itself")
    numbers, num_clusters = _numbered(cluster, len(scores))
    return Battles(names=names, left=one, right=other, result=scores, cluster=numbers, num_clusters=num_clusters)


def from_winners(
    left: Sequence[str], right: Sequence[str], winner: Sequence[str], *, cluster: Sequence[Hashable] | None = None
) -> Battles:
    """`winner` holds words as in public files of votes (WINNERS): "model_a" is known, "model a" is refused."""
    unknown = sorted({*winner} - WINNERS.keys())
    if unknown:
        place = next(place for place, word in enumerate(winner) if word == unknown[0])
        raise ValueError(f"battle {place} was won by {unknown[0]!r}; known are {', '.join(sorted(WINNERS))}")
    return battles(left, right, [WINNERS[word] for word in winner], cluster=cluster)


def _numbered(cluster: Sequence[Hashable] | None, count: int) -> tuple[Places | None, int]:
    if cluster is None:
        return None, count
    if len(cluster) != count:
        raise ValueError(f"{count} battles came with {len(cluster)} clusters; send one cluster per battle")
    seen = _Numbering[Hashable]()
    numbers = seen.of(cluster)
    if None not in seen:
        return numbers, len(seen)
    alone = np.flatnonzero(numbers == seen[None])
    numbers[alone] = len(seen) + np.arange(len(alone))
    return np.unique(numbers, return_inverse=True)[1], len(seen) - 1 + len(alone)


class _Numbering(dict[Key, int], Generic[Key]):
    """Numbers keys in the order in which they are first asked for."""

    def __missing__(self, key: Key) -> int:
        self[key] = number = len(self)
        return number

    def of(self, keys: Sequence[Key]) -> Places:
        return np.fromiter(map(self.__getitem__, keys), dtype=np.int64, count=len(keys))
