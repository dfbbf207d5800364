"""What a person can do about an update that failed: known reasons, found in the error's own words."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    reason: str  # what happened, in plain words
    steps: tuple[str, ...]  # what to do, most likely first


KNOWN: tuple[tuple[tuple[str, ...], Advice], ...] = (
    (
        ("out of memory", "OutOfMemory", "MemoryError", "can't allocate memory"),
        Advice(
            reason="The updater ran out of memory.",
            steps=(
                "Halve micro_batch_tokens and start again: it bounds memory and does not change the loss.",
                "Stop what else uses the device, or give the updater another one with STROP_DEVICE.",
            ),
        ),
    ),
    (
        ("too far from its sampler",),
        Advice(
            reason="The policy moved too far from its sampler in three steps in a row or in all: it was diverging.",
            steps=(
                "Start the next one with the careful preset, or halve learning_rate; this batch stays in quarantine.",
                "If its samples are old, lower max_lag for the next update.",
            ),
        ),
    ),
    (
        ("not finite",),
        Advice(
            reason="The gradient was not finite in three steps in a row or in all: it was diverging.",
            steps=(
                "Start the next one with the careful preset, or halve learning_rate; this batch stays in quarantine.",
                "Look at the samples with the largest advantages; one of them may be wrong.",
            ),
        ),
    ),
    (
        ("too few effective samples",),
        Advice(
            reason="No step was taken: the policy has moved on from what sampled these turns.",
            steps=(
                "Lower max_lag, so that older turns are left out; these turns are free for the next update.",
                "A smaller min_ess takes such steps all the same, with few samples deciding them.",
            ),
        ),
    ),
    (
        ("no sample of the batch can be trained",),
        Advice(
            reason="Every sample of the batch was left out.",
            steps=(
                "The counts in the message name the reasons; too_stale ones need a larger max_lag.",
                "Turns without logprobs are learnt from by KTO: choose it when you start the update.",
            ),
        ),
    ),
    (
        ("No space left",),
        Advice(reason="The disk is full.", steps=("Free space with strop gc, then replay or start again.",)),
    ),
    (
        ("CorruptCheckpoint", "CorruptBatch", "does not match its digests"),
        Advice(
            reason="Files on disk are not what was written.",
            steps=("Restore them from a backup, or rebuild the checkpoint: strop gc --rebuild POLICY@VERSION.",),
        ),
    ),
    (
        ("the worker died each time", "died while"),
        Advice(
            reason="The updater was killed each time it ran this.",
            steps=(
                "Usually the system ended it for its memory: look at updater.log and at the system's log.",
                "Halve micro_batch_tokens and try a dry run first.",
            ),
        ),
    ),
)
OTHERWISE = Advice(
    reason="The updater stopped with an error.",
    steps=(
        "The end of updater.log in the home's logs folder has the whole story.",
        "Try a dry run with the same settings.",
    ),
)


def advise(error: str) -> Advice:
    """The first known reason whose words are in the error."""
    for words, advice in KNOWN:
        if any(word in error for word in words):
            return advice
    return OTHERWISE
