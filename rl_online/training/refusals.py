"""What a config cannot be given: batches that do not fit it, found before any weights are looked at.

Settings that contradict each other are refused by `UpdateConfig` itself. Torch-free: whoever starts an update asks too.
"""

from collections.abc import Sequence

from rl_online.policy.vocabulary import Vocabulary
from rl_online.rewards.batch import Batch
from rl_online.rewards.update_config import NEEDS_CORRECTION, SEQUENCE_LOSSES, UpdateConfig
from rl_online.training.errors import ContradictoryUpdate
from rl_online.training.samples import Stream, TrainingSample, why_no_ratio


def refuse_contradictions(batch: Batch, samples: Sequence[TrainingSample], config: UpdateConfig) -> None:
    """Raise ContradictoryUpdate where this batch and this config do not go together; before any work is done."""
    in_rl = [one for one in samples if Stream.RL in one.weights]
    stale = [one for one in in_rl if one.lag > 0]
    if stale and config.correction == "none" and config.policy_loss in NEEDS_CORRECTION:
        raise ContradictoryUpdate(
            f"{len(stale)} samples are up to {max(one.lag for one in stale)} updates old and correction is none: "
            f"{config.policy_loss} on data of another policy needs one, or choose decoupled, or max_lag 0"
        )
    if config.policy_loss in SEQUENCE_LOSSES and any(isinstance(one.advantage, list) for one in in_rl):
        raise ContradictoryUpdate(
            f"{config.policy_loss} has one ratio for each answer; these have credit for each token"
        )
    if config.advantage != "baseline":
        _refuse_for_groups(batch, in_rl, config)
    pairs = sum(one.pair is not None for one in samples)
    if config.takes_pairs and not pairs:
        raise ContradictoryUpdate(f"pref_loss {config.pref_loss} takes pairs, and no two answers of this batch are one")


def refuse_for_corpus(config: UpdateConfig) -> None:
    """Raise ContradictoryUpdate for settings that mid-training, cross-entropy alone, would leave out."""
    if not config.ce_weight:
        raise ContradictoryUpdate("ce_weight is 0, so nothing would be learnt of the corpus; give it a weight")
    for name in ("base_kl", "distill_weight"):
        if value := getattr(config, name):
            raise ContradictoryUpdate(f"{name} is {value:g}, but mid-training is cross-entropy alone; set it to 0")


def refuse_teacher(samples: Sequence[TrainingSample], config: UpdateConfig, *, has_teacher: bool) -> None:
    """Raise ContradictoryUpdate where the config asks for a teacher that is not there, or one is there unasked.

    `has_teacher`: its network is in a folder.
    """
    if not config.distill_weight:
        if has_teacher:
            raise ContradictoryUpdate("a teacher is named and distill_weight is 0; give it a weight, or name none")
        return
    estimator = config.distill_estimator
    if estimator == "top_k" and has_teacher:
        raise ContradictoryUpdate("the teacher's folder gives all its logits; choose distill_estimator logits")
    if estimator == "sampled" and (has_teacher or any(one.teacher is not None for one in samples)):
        return
    if any(one.teaching is not None for one in samples):
        return
    missing = {
        "logits": "the update names no teacher, and no answer of the batch has a hint",
        "top_k": "no answer of the batch has what a teacher holds likely",
        "sampled": "the update names no teacher, and no answer of the batch has a teacher's log-probabilities",
    }
    raise ContradictoryUpdate(f"distill_weight is {config.distill_weight:g}, but {missing[estimator]}")


def refuse_vocabulary(teacher: Vocabulary, policy: Vocabulary) -> None:
    """Raise ContradictoryUpdate where the two do not mean the same by a token id: no logit of one fits the other's."""
    if teacher.digest != policy.digest:
        raise ContradictoryUpdate(
            f"the teacher splits text into other tokens (vocabulary {teacher.digest[:12]}, the policy's "
            f"{policy.digest[:12]}); of such a teacher only text can be learnt"
        )
    if teacher.num_logits != policy.num_logits:
        raise ContradictoryUpdate(
            f"the teacher has {teacher.num_logits} logits and the policy {policy.num_logits}; only their texts compare"
        )


def _refuse_for_groups(batch: Batch, in_rl: Sequence[TrainingSample], config: UpdateConfig) -> None:
    """A group is compared whole: a sample that no ratio loss can take would silently change what the others earn."""
    compared = [one for one in batch.samples if one.kind == "rl" and not one.row.get("is_correction")]
    reasons = [reason for one in compared if (reason := why_no_ratio(one))]
    if reasons:
        raise ContradictoryUpdate(
            f"advantage {config.advantage} compares whole groups; {len(reasons)} samples were {reasons[0]}"
        )
    if alone := sum(one.group is None and not one.is_correction for one in in_rl):
        raise ContradictoryUpdate(
            f"advantage {config.advantage} compares the answers of a group; {alone} samples have none"
        )
