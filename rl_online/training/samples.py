"""Which samples of a batch may be learnt from, and by which loss.

Pure decisions on what the batch recorded. A ratio loss takes a sample only when everything it needs is known: the
log-probability of every trained token at sampling, at a temperature above 0 and without top-p or top-k. A good or bad
answer that lacks this goes to KTO, which needs none of it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rl_online.rewards.batch import UNKNOWN_VERSION, Batch, Sample
from rl_online.rewards.update_config import UpdateConfig


class Stream(StrEnum):
    """A loss with a denominator of its own."""

    RL = "rl"  # ratio to the sampler
    KTO = "kto"  # good or bad, no log-probabilities needed
    CE = "ce"  # imitate


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingSample:
    """One token sequence to learn from, with its credit already assigned.

    Example: prompt [5, 6], completion [7, 8], advantage .5
        token_ids = [5, 6, 7, 8]   positions = [2, 3]   behaviour = [-.1, -.7]
    """

    stream: Stream
    token_ids: list[int]
    positions: list[int]  # of the trained tokens, ascending, each at least 1; the lists below run along it
    weight: float
    reward: float
    advantage: float = 0.0  # reward - baseline: credit of every trained token in rl, good (> 0) or bad (< 0) in kto
    behaviour: list[float] | None = None  # rl: log-probabilities at sampling
    temperature: float = 1.0  # of the sampling distribution; logits are divided by it
    base: list[float] | None = None  # rl with a KL to the base: the base's log-probabilities
    reference: float = 0.0  # kto: the reference's summed log-probability of the trained tokens
    is_heldout: bool = False  # measured after each step, never trained on


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """What is left of a batch, and why the rest is not there."""

    samples: list[TrainingSample]
    dropped: dict[str, int]  # reason -> samples


def select_samples(batch: Batch, config: UpdateConfig, lineage: Sequence[int]) -> Selection:
    """Sort a batch into streams. `lineage` holds the versions from the oldest to the one being trained."""
    samples: list[TrainingSample] = []
    dropped: Counter[str] = Counter()
    for sample in batch.samples:
        positions = [place for place, is_chosen in enumerate(sample.mask) if is_chosen and place > 0]
        decision = _decide(sample, positions, config, lineage)
        if isinstance(decision, str) and not isinstance(decision, Stream):
            dropped[decision] += 1
        else:
            samples.append(_to_training_sample(sample, positions, Stream(decision)))
    return Selection(samples=samples, dropped=dict(dropped))


def lag(versions: Sequence[int], lineage: Sequence[int]) -> int | None:
    """Updates between the oldest sampler and the weights being trained; None when a version is off the lineage.

    Example: lineage [1, 2, 5] (3 and 4 were never promoted), sampled by 2: lag 1.
    """
    places = {version: place for place, version in enumerate(lineage)}
    known = [places.get(version) for version in versions]
    if not known or None in known:
        return None
    return len(lineage) - 1 - min(place for place in known if place is not None)


def _decide(sample: Sample, positions: Sequence[int], config: UpdateConfig, lineage: Sequence[int]) -> Stream | str:
    """The stream a sample belongs to, or the reason it is dropped."""
    if sample.is_tombstone:
        return "deleted"
    if not positions:
        return "nothing_trained"
    if sample.weight == 0:
        return "zero_weight"
    if sample.kind == "ce":
        return Stream.CE if config.ce_weight else "ce_off"
    versions = [sample.versions[place] for place in positions]
    is_known = UNKNOWN_VERSION not in versions
    if is_known:
        age = lag(versions, lineage)
        if age is None:
            return "off_lineage"
        if age > config.max_lag:
            return "too_stale"
    if sample.kind == "rl" and is_known and has_ratio(sample):
        return Stream.RL
    if not config.kto_weight:
        return "kto_off"
    return "no_verdict" if sample.reward == sample.baseline else Stream.KTO


def has_ratio(sample: Sample) -> bool:
    """Whether the recorded log-probabilities are those of the full softmax at a known temperature above 0."""
    sampling = sample.row.get("sampling") or {}
    temperature, top_p, top_k = (sampling.get(name) for name in ("temperature", "top_p", "top_k"))
    return (
        sample.behaviour_logprobs is not None
        and (temperature is None or temperature > 0)
        and (top_p is None or top_p == 1)
        and (top_k is None or top_k <= 0)
        and not any(sampling.get(name) for name in ("frequency_penalty", "presence_penalty"))
    )


def _to_training_sample(sample: Sample, positions: list[int], stream: Stream) -> TrainingSample:
    recorded = sample.behaviour_logprobs
    temperature = (sample.row.get("sampling") or {}).get("temperature")
    is_ratio = stream is Stream.RL and recorded is not None
    return TrainingSample(
        stream=stream,
        token_ids=sample.token_ids,
        positions=positions,
        weight=sample.weight,
        reward=sample.reward,
        advantage=0.0 if stream is Stream.CE else sample.reward - sample.baseline,
        behaviour=[recorded[place] for place in positions] if is_ratio and recorded is not None else None,
        temperature=1.0 if temperature is None or not is_ratio else float(temperature),
        is_heldout=sample.is_heldout,
    )
