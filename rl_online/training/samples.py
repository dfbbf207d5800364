"""Which samples of a batch may be learnt from, and by which losses.

Pure decisions on what the batch recorded. A ratio loss takes a sample only when everything it needs is known: the
log-probability of every trained token at sampling, at a temperature above 0 and without top-p or top-k. A good or bad
answer that lacks this goes to KTO, which needs none of it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from rl_online.rewards.batch import NO_PAIR, UNKNOWN_VERSION, Batch, Sample
from rl_online.rewards.update_config import UpdateConfig

DISTILL = "distill"  # a sample's kind: the policy's own answer, of which nothing but a teacher's opinion is learnt


class Stream(StrEnum):
    """A loss with a denominator of its own. A sample may feed several."""

    RL = "rl"  # rewards, by a ratio to the sampler
    CE = "ce"  # imitate
    REF_KL = "ref_kl"  # stay near the base, come near a teacher
    PREF = "pref"  # good or bad, or better than another; no log-probabilities of the sampler needed


Weight = float | list[float]  # of the whole sequence, or of each trained token


@dataclass(frozen=True, kw_only=True, slots=True)
class Teaching:
    """Where a teacher's distribution at each trained token of a sample comes from: from what it said, or reads.

    Example: prompt [5, 6], completion [7, 8], hinted prompt [5, 9, 6]
        reads = [5, 9, 6, 7, 8]   places = [3, 4]
    """

    weight: Weight
    reads: list[int] = field(default_factory=list)  # the sample itself, or with a hint in its prompt
    places: list[int] = field(default_factory=list)  # of the trained tokens in `reads`
    top: list[list[tuple[int, float]]] | None = None  # of each trained token: the ids it named, their log-probabilities


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingSample:
    """One token sequence to learn from, with its credit already assigned.

    Example: prompt [5, 6], completion [7, 8], advantage .5, near the base
        token_ids = [5, 6, 7, 8]   positions = [2, 3]   behaviour = [-.1, -.7]   weights = {rl: 1, ref_kl: 1}
    """

    token_ids: list[int]
    positions: list[int]  # of the trained tokens, ascending, each at least 1; every list below runs along it
    weights: Mapping[Stream, Weight]  # the streams it feeds; with a `teaching` it feeds ref_kl besides
    reward: float
    advantage: Weight = 0.0  # rl: credit of the trained tokens; pref: good (> 0) or bad (< 0)
    behaviour: list[float] | None = None  # rl: log-probabilities at sampling
    proximal: list[float] | None = None  # rl by a loss that needs it: the trainer's own before its first step
    temperature: float = 1.0  # of the sampling distribution; logits are divided by it
    base: list[float] | None = None  # ref_kl: the base's log-probabilities
    teaching: Teaching | None = None  # ref_kl: how far it is from its teacher is part of the loss
    teacher: list[float] | None = None  # rl: a teacher's log-probabilities, which its advantage is to follow
    reference: float = 0.0  # pref: the reference's summed log-probability of the trained tokens
    pair: int | None = None  # pref: the same number in both answers of a pair; None for a single answer
    is_chosen: bool = True  # of a pair: the better one
    group: str | None = None  # answers to the same prompt, whose rewards are compared
    is_correction: bool = False  # new reward minus old of an answer learnt before: in no group, its credit as sealed
    lag: int = 0  # updates between its sampler and the weights being trained
    is_heldout: bool = False  # measured after each step, never trained on
    index: int = 0  # its place in the batch
    slice: str = ""  # ce: what its loss is also shown by, such as a language; empty: nothing
    facts: Mapping[str, float] = field(default_factory=dict)  # numbers that each step's report averages, by name

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """What is left of a batch, and why the rest is not there."""

    samples: list[TrainingSample]
    dropped: dict[str, int]  # reason -> samples


def select_samples(batch: Batch, config: UpdateConfig, lineage: Sequence[int]) -> Selection:
    """Sort a batch into streams. `lineage` holds the versions from the oldest to the one being trained.

    The answers of a pair follow each other, the better one first. Where rewards are compared within a group, a group
    that lacks an answer is left out whole: what the others earn would rest on which one is missing.
    """
    broken: set[str] = set() if config.advantage == "baseline" else _broken_groups(batch, config, lineage)
    takes_pairs = config.takes_pairs
    preferred = {sample.pair for sample in batch.samples if _is_worse(sample)} if takes_pairs else set()
    samples: list[TrainingSample] = []
    dropped: Counter[str] = Counter()
    for index, sample in enumerate(batch.samples):
        if takes_pairs and _is_worse(sample):
            places = (sample.pair, index)
            reasons = [reason for place in places if (reason := _unusable(batch.samples[place], config, lineage))]
            if reasons:
                dropped[reasons[-1]] += 1
                continue
            is_heldout = any(batch.samples[place].is_heldout for place in places)
            for place in places:
                one = _to_training_sample(batch.samples[place], Stream.PREF, config, lineage)
                samples.append(replace(one, index=place, pair=index, is_chosen=place != index, is_heldout=is_heldout))
            continue
        if takes_pairs and sample.kind == "pref":
            dropped["no_pair"] += index not in preferred
            continue
        decision = _decide(sample, config, lineage)
        if isinstance(decision, Stream) and sample.kind == "rl" and sample.row.get("group") in broken:
            dropped["broken_group"] += 1
        elif isinstance(decision, Stream):
            samples.append(replace(_to_training_sample(sample, decision, config, lineage), index=index))
        else:
            dropped[decision] += 1
    return Selection(samples=samples, dropped={reason: count for reason, count in dropped.items() if count})


def _broken_groups(batch: Batch, config: UpdateConfig, lineage: Sequence[int]) -> set[str]:
    """Groups with an answer that no ratio loss may take."""
    answers = [one for one in batch.samples if one.kind == "rl" and one.row.get("group") is not None]
    return {str(one.row["group"]) for one in answers if _decide(one, config, lineage) is not Stream.RL}


def lag(versions: Sequence[int], lineage: Sequence[int]) -> int | None:
    """Updates between the oldest sampler and the weights being trained; None when a version is off the lineage.

    Example: lineage [1, 2, 5] (3 and 4 were never promoted), sampled by 2: lag 1.
    """
    places = {version: place for place, version in enumerate(lineage)}
    known = [places.get(version) for version in versions]
    if not known or None in known:
        return None
    return len(lineage) - 1 - min(place for place in known if place is not None)


def _is_worse(sample: Sample) -> bool:
    return sample.kind == "pref" and sample.pair != NO_PAIR


def _decide(sample: Sample, config: UpdateConfig, lineage: Sequence[int]) -> Stream | str:
    """The stream a sample belongs to, or the reason it is dropped."""
    if reason := _unusable(sample, config, lineage):
        return reason
    if sample.kind == "ce":
        return Stream.CE if config.ce_weight else "ce_off"
    if sample.kind == DISTILL:
        return _decide_taught(sample, config)
    if sample.kind == "rl" and UNKNOWN_VERSION not in _versions(sample) and has_ratio(sample):
        return Stream.RL
    if not config.kto_weight:
        return "kto_off"
    return "no_verdict" if sample.reward == sample.baseline else Stream.PREF


def _decide_taught(sample: Sample, config: UpdateConfig) -> Stream | str:
    """Of an answer that a teacher alone has something to say about."""
    if not config.distill_weight:
        return "distill_off"
    if UNKNOWN_VERSION in _versions(sample):
        return "unknown_version"  # it may be anybody's: learning where oneself goes wrong needs one's own answers
    if not has_ratio(sample) and (config.distills_sampled or config.base_kl):
        return "no_logprobs"
    return Stream.RL if config.distills_sampled else Stream.REF_KL


def _unusable(sample: Sample, config: UpdateConfig, lineage: Sequence[int]) -> str | None:
    """Why no loss may take a sample."""
    if sample.is_tombstone:
        return "deleted"
    if not _positions(sample):
        return "nothing_trained"
    if sample.weight == 0:
        return "zero_weight"
    versions = _versions(sample)
    if sample.kind == "ce" or UNKNOWN_VERSION in versions:
        return None
    age = lag(versions, lineage)
    if age is None:
        return "off_lineage"
    return "too_stale" if age > config.max_lag else None


def has_ratio(sample: Sample) -> bool:
    """Whether the recorded log-probabilities are those of the full softmax at a known temperature above 0."""
    return why_no_ratio(sample) is None


def why_no_ratio(sample: Sample) -> str | None:
    """What keeps a sample out of every ratio loss, in words; None: nothing.

    The log-probability of a token inside a nucleus is another one than that of the softmax: at probability .5 in a
    nucleus of .8, -.470 against -.693. A ratio between the two is wrong by a factor of .8 for each token.
    """
    sampling = sample.row.get("sampling") or {}
    temperature, top_p, top_k = (sampling.get(name) for name in ("temperature", "top_p", "top_k"))
    if sample.behaviour_logprobs is None:
        return "drawn without recording log-probabilities"
    if temperature is not None and temperature <= 0:
        return "drawn greedily, at temperature 0"
    if top_p is not None and top_p != 1:
        return f"drawn with top_p {top_p:g}, so the recorded log-probabilities are not those of the softmax"
    if top_k is not None and top_k > 0:
        return f"drawn with top_k {top_k}, so the recorded log-probabilities are not those of the softmax"
    if any(sampling.get(name) for name in ("frequency_penalty", "presence_penalty")):
        return "drawn with penalties on repeated tokens"
    return None


def _positions(sample: Sample) -> list[int]:
    return [place for place, is_chosen in enumerate(sample.mask) if is_chosen and place > 0]


def _versions(sample: Sample) -> list[int]:
    return [sample.versions[place] for place in _positions(sample)]


def _to_training_sample(sample: Sample, stream: Stream, config: UpdateConfig, lineage: Sequence[int]) -> TrainingSample:
    positions, recorded = _positions(sample), sample.behaviour_logprobs
    temperature = (sample.row.get("sampling") or {}).get("temperature")
    is_ratio = stream in (Stream.RL, Stream.REF_KL) and has_ratio(sample)
    weight = weight_of(sample, positions)
    streams = [one for one in (stream, Stream.REF_KL) if one is not Stream.REF_KL or (is_ratio and config.base_kl)]
    return TrainingSample(
        token_ids=sample.token_ids,
        positions=positions,
        weights=dict.fromkeys(streams, weight),
        reward=sample.reward,
        advantage=_advantage(sample, positions, stream),
        behaviour=[recorded[place] for place in positions] if is_ratio and recorded is not None else None,
        temperature=1.0 if temperature is None or not is_ratio else float(temperature),
        group=sample.row.get("group"),
        is_correction=bool(sample.row.get("is_correction")),
        lag=lag(_versions(sample), lineage) or 0,
        is_heldout=sample.is_heldout,
    )


def weight_of(sample: Sample, positions: Sequence[int]) -> Weight:
    """Of its trained tokens."""
    per_token = sample.row.get("token_weights")
    return sample.weight if per_token is None else [sample.weight * per_token[place] for place in positions]


def _advantage(sample: Sample, positions: Sequence[int], stream: Stream) -> Weight:
    if stream is Stream.CE or sample.kind == DISTILL:
        return 0.0
    per_token = sample.row.get("advantages")
    if stream is Stream.RL and per_token is not None:
        return [float(per_token[place]) for place in positions]
    return sample.reward - sample.baseline
