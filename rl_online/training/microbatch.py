"""Cutting a minibatch into forward passes: by length, so that little is spent on padding, or packed without any."""

from collections.abc import Sequence

from rl_online.training.samples import TrainingSample


def micro_batches(samples: Sequence[TrainingSample], max_tokens: int) -> list[list[int]]:
    """Indices into `samples`, longest first, each group at most `max_tokens` after padding (or one unit).

    A unit is a sample, or a pair: its loss needs both answers in one pass.
    """
    return _filled(samples, sorted(units(samples), key=lambda unit: (-_longest(samples, unit), unit[0])), max_tokens)


def packed_batches(samples: Sequence[TrainingSample], max_tokens: int) -> list[list[int]]:
    """The same for packed rows: each group at most `max_tokens` in all, the longest units first and the gaps filled."""
    groups: list[list[int]] = []
    sizes: list[int] = []
    for unit in sorted(units(samples), key=lambda unit: (-_total(samples, unit), unit[0])):
        size = _total(samples, unit)
        place = next((place for place, used in enumerate(sizes) if used + size <= max_tokens), None)
        if place is None:
            groups.append(list(unit))
            sizes.append(size)
        else:
            groups[place] += unit
            sizes[place] += size
    return groups


def units(samples: Sequence[TrainingSample]) -> list[list[int]]:
    """What must stay together, in the order of the samples."""
    found: list[list[int]] = []
    places: dict[int, int] = {}
    for index, sample in enumerate(samples):
        if sample.pair is not None and sample.pair in places:
            found[places[sample.pair]].append(index)
            continue
        if sample.pair is not None:
            places[sample.pair] = len(found)
        found.append([index])
    return found


def padding_share(samples: Sequence[TrainingSample], groups: Sequence[Sequence[int]]) -> float:
    """Of all places that passes over these groups compute, those that hold no token."""
    padded = sum(_longest(samples, group) * len(group) for group in groups)
    return 1 - sum(len(samples[index]) for group in groups for index in group) / padded if padded else 0.0


def in_given_order(samples: Sequence[TrainingSample], max_tokens: int) -> list[list[int]]:
    """Groups of the same size as `micro_batches` would make without sorting: what its padding is compared with."""
    return _filled(samples, units(samples), max_tokens)


def _filled(samples: Sequence[TrainingSample], ordered: Sequence[list[int]], max_tokens: int) -> list[list[int]]:
    groups: list[list[int]] = []
    for unit in ordered:
        if groups and _padded(samples, [*groups[-1], *unit]) <= max_tokens:
            groups[-1] += unit
        else:
            groups.append(list(unit))
    return groups


def _padded(samples: Sequence[TrainingSample], group: Sequence[int]) -> int:
    return len(group) * _longest(samples, group)


def _longest(samples: Sequence[TrainingSample], group: Sequence[int]) -> int:
    return max(len(samples[index]) for index in group)


def _total(samples: Sequence[TrainingSample], group: Sequence[int]) -> int:
    return sum(len(samples[index]) for index in group)
