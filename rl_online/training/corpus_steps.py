"""The steps of an update over a corpus: its rows in a shuffled order, of which memory holds a few shards.

In every epoch each row is in one step. The order is settled by seed and manifest alone, so the number of steps done is
the place in it: an update that was killed reads on from there. Not here: what a step does (apply).
"""

import random
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise

from rl_online.corpus.shards import Corpus, Row, read_shard
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.samples import Stream, TrainingSample

SHARDS_AT_ONCE = 4  # shuffled together: neighbours in a folder are alike, and a step is to see several kinds


class CorpusSteps:
    """Implements Steps. A step takes `minibatch_size` rows, give or take one."""

    def __init__(self, corpus: Corpus, config: UpdateConfig, *, seed: int, crash: Callable[[str], None]) -> None:
        self._corpus, self._seed, self._crash = corpus, seed, crash
        self._per_epoch = max(1, round(corpus.num_rows / config.minibatch_size))
        self._epochs = config.epochs
        self._held: tuple[int, int, list[Row]] = (-1, -1, [])  # epoch, group, its rows in order

    def __len__(self) -> int:
        return self._per_epoch * self._epochs

    def take(self, step: int) -> tuple[list[TrainingSample], list[TrainingSample | None]]:
        epoch, place = divmod(step - 1, self._per_epoch)
        start, end = (round(self._corpus.num_rows * cut / self._per_epoch) for cut in (place, place + 1))
        samples = [sample for row in self._rows(epoch, start, end) for sample in samples_of(row)]
        return samples, [None] * len(samples)

    def _rows(self, epoch: int, start: int, end: int) -> Iterator[Row]:
        """Those at places `start` to `end` of an epoch's order."""
        groups = self._groups(epoch)
        sizes = [sum(self._corpus.shards[number].num_rows for number in group) for group in groups]
        for number, (first, last) in enumerate(pairwise(accumulate(sizes, initial=0))):
            if first < end and last > start:
                yield from self._group(epoch, number, groups[number])[max(start - first, 0) : end - first]

    def _groups(self, epoch: int) -> list[list[int]]:
        """Shards in the order of an epoch, as many together as are shuffled together."""
        order = list(range(len(self._corpus.shards)))
        random.Random(f"{self._seed}:{epoch}").shuffle(order)
        return [order[start : start + SHARDS_AT_ONCE] for start in range(0, len(order), SHARDS_AT_ONCE)]

    def _group(self, epoch: int, number: int, shards: list[int]) -> list[Row]:
        if self._held[:2] != (epoch, number):
            self._held = (-1, -1, [])  # let go of the last ones before the next are read
            self._crash("update.next_shards")
            rows = [row for shard in shards for row in read_shard(self._corpus, shard) if not row.is_heldout]
            random.Random(f"{self._seed}:{epoch}:{number}").shuffle(rows)
            self._held = (epoch, number, rows)
        return self._held[2]


def heldout_of(corpus: Corpus) -> list[TrainingSample]:
    """What a corpus sets aside, all of it: bounded by the recipe."""
    return [
        sample
        for number, shard in enumerate(corpus.shards)
        if shard.num_heldout
        for row in read_shard(corpus, number)
        if row.is_heldout
        for sample in samples_of(row)
    ]


def samples_of(row: Row) -> list[TrainingSample]:
    """Each piece by itself, so that no token sees another document's; every token but its first is learnt."""
    return [
        TrainingSample(
            token_ids=part.token_ids.tolist(),
            positions=list(range(1, len(part.token_ids))),
            weights={Stream.CE: 1.0},
            reward=0.0,
            slice=part.language,
            is_heldout=row.is_heldout,
        )
        for part in row.parts
    ]
