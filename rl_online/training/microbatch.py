"""Cutting a minibatch into forward passes: by length, so that little is spent on padding."""

from collections.abc import Sequence

from rl_online.training.samples import TrainingSample


def micro_batches(samples: Sequence[TrainingSample], max_tokens: int) -> list[list[int]]:
    """Indices into `samples`, longest first, each group at most `max_tokens` after padding (or one sample)."""
    lengths = [len(sample.token_ids) for sample in samples]
    groups: list[list[int]] = []
    for index in sorted(range(len(samples)), key=lambda index: (-lengths[index], index)):
        if groups and (len(groups[-1]) + 1) * lengths[groups[-1][0]] <= max_tokens:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups
