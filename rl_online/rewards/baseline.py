"""What reward was to be expected: a running baseline per slice, so that only the surprise teaches.

A slice (surface, language, problem family) keeps a decayed sum and count of its rewards. The baseline of a sample is
the mean of its slice, past and present but without the sample itself, shrunk towards the mean of the whole batch by
`SHRINK` imaginary samples. Leaving the sample out keeps the gradient unbiased; a batch in which all rewards are equal
teaches nothing to a slice with no other past. Deterministic: the same state and batch, in the same order, give the
same bits.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

DECAY = 0.7  # weight of everything before this batch
SHRINK = 4.0  # a slice with this many samples counts half for itself, half for the batch mean


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningSlice:
    """The decayed past of one slice."""

    total: float  # decayed sum of rewards
    count: float  # decayed number of samples


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchBaselines:
    """The baselines of one batch and the state to keep for the next.

    Example: no past, rewards a: [1, 0], b: [1, 0] -> for the first sample the others of slice a sum to 0 over 1 and
    the rest of the batch has mean 1/3, so its baseline is (0 + 4/3) / (1 + 4) = .2667
    """

    per_sample: list[float]  # aligned with the samples given
    state: dict[str, RunningSlice]  # slices of the past stay, decayed


def next_baselines(
    previous: Mapping[str, RunningSlice],
    samples: Sequence[tuple[str, float]],
    *,
    decay: float = DECAY,
    shrink: float = SHRINK,
) -> BatchBaselines:
    """Baselines of `samples`, pairs of slice and reward. A lone sample of a batch shrinks to its slice's past, or 0."""
    rewards_by_slice: defaultdict[str, list[float]] = defaultdict(list)
    for name, reward in samples:
        rewards_by_slice[name].append(reward)
    state = {
        name: RunningSlice(
            total=decay * past.total + math.fsum(rewards_by_slice.get(name, [])),
            count=decay * past.count + len(rewards_by_slice.get(name, [])),
        )
        for name, past in _with_new_slices(previous, rewards_by_slice).items()
    }
    batch_total = math.fsum(reward for _, reward in samples)
    per_sample = [
        _baseline(state[name], reward, others_total=batch_total - reward, num_others=len(samples) - 1, shrink=shrink)
        for name, reward in samples
    ]
    return BatchBaselines(per_sample=per_sample, state=state)


def to_json(state: Mapping[str, RunningSlice]) -> dict[str, dict[str, float]]:
    """The state as stored beside an update."""
    return {name: {"total": running.total, "count": running.count} for name, running in sorted(state.items())}


def from_json(stored: Mapping[str, Mapping[str, float]]) -> dict[str, RunningSlice]:
    """The inverse of `to_json`; an empty object is a fresh start."""
    return {name: RunningSlice(total=part["total"], count=part["count"]) for name, part in stored.items()}


def _with_new_slices(
    previous: Mapping[str, RunningSlice], rewards_by_slice: Mapping[str, Sequence[float]]
) -> dict[str, RunningSlice]:
    fresh = {name: RunningSlice(total=0.0, count=0.0) for name in rewards_by_slice if name not in previous}
    return {**previous, **fresh}


def _baseline(running: RunningSlice, reward: float, *, others_total: float, num_others: int, shrink: float) -> float:
    strength = shrink if num_others else 0.0
    batch_mean = others_total / num_others if num_others else 0.0
    count = running.count - 1 + strength
    # A decayed count can leave 1e-16 of a sample behind.
    return (running.total - reward + strength * batch_mean) / count if count > 1e-9 else 0.0
