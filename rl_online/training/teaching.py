"""What a teacher has to say about each sample: found in its row of the batch, or to be asked of a network.

Pure. A teacher behind an address was asked when the batch was sealed; one in a folder, or the policy itself with a hint
in its prompt, is asked while the update runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from rl_online.algorithms.on_policy_distillation import distillation_advantage
from rl_online.rewards.batch import Batch, Sample
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.samples import DISTILL, Selection, Stream, Teaching, TrainingSample, weight_of

HINTED_PROMPT = "hinted_prompt"  # in a row: the prompt's token ids with a hint in it
TEACHER_LOGPROBS = "teacher_logprobs"  # one for each token, 0 where the mask is 0
TEACHER_TOP = "teacher_top"  # of each trained token: [[id, log-probability], ...] of those the teacher named


def with_teaching(selection: Selection, batch: Batch, config: UpdateConfig, *, has_teacher: bool) -> Selection:
    """The answers of the policy itself with what their teacher says, or is to read; any others as they are.

    `has_teacher`: a network in a folder can be asked. An answer there for a teacher alone that has none is dropped.
    """
    if not config.distill_weight:
        return selection
    samples: list[TrainingSample] = []
    num_untaught = 0
    for one in selection.samples:
        sample = batch.samples[one.index]
        if sample.kind not in ("rl", DISTILL) or Stream.PREF in one.weights:
            samples.append(one)
            continue
        taught = _taught(one, sample, config, has_teacher=has_teacher)
        if sample.kind == DISTILL and taught is one and not (config.distills_sampled and has_teacher):
            num_untaught += 1
        else:
            samples.append(taught)
    dropped = selection.dropped | ({"untaught": num_untaught} if num_untaught else {})
    return Selection(samples=samples, dropped=dropped)


def _taught(one: TrainingSample, sample: Sample, config: UpdateConfig, *, has_teacher: bool) -> TrainingSample:
    """The sample itself where nobody says anything about it, or a network is to be asked for single opinions."""
    weight = weight_of(sample, one.positions)
    if config.distills_sampled:
        logprobs = sample.row.get(TEACHER_LOGPROBS)
        return one if logprobs is None else replace(one, teacher=[float(logprobs[place]) for place in one.positions])
    if config.distill_estimator == "top_k":
        top = sample.row.get(TEACHER_TOP)
        if top is None:
            return one
        named = [[(int(token), float(logprob)) for token, logprob in row] for row in top]
        return replace(one, teaching=Teaching(weight=weight, top=named))
    hinted = sample.row.get(HINTED_PROMPT)
    if hinted is None and not has_teacher:
        return one
    start = sample.prompt_length
    prompt = sample.token_ids[:start] if hinted is None else list(hinted)
    shift = len(prompt) - start
    return replace(
        one,
        teaching=Teaching(
            weight=weight,
            reads=[*prompt, *sample.token_ids[start:]],
            places=[place + shift for place in one.positions],
        ),
    )


def with_opinions(
    samples: Sequence[TrainingSample],
    config: UpdateConfig,
    score: Callable[[Sequence[TrainingSample]], list[list[float]]] | None,
) -> list[TrainingSample]:
    """Where a teacher's opinion of each sampled token is an advantage: that, on top of what the sample has.

    `score` gives a teacher network's log-probabilities of the trained tokens; None where the batch has what it said.
    """
    if not config.distills_sampled:
        return list(samples)
    in_rl = [one for one in samples if Stream.RL in one.weights]
    said = iter([one.teacher for one in in_rl] if score is None else score(in_rl))
    found = []
    for one in samples:
        teacher = next(said) if Stream.RL in one.weights else None
        if teacher is None or one.behaviour is None:
            found.append(one)
            continue
        opinion = distillation_advantage(
            torch.tensor(one.behaviour), torch.tensor(teacher), coefficient=config.distill_weight
        ).tolist()
        credit = one.advantage if isinstance(one.advantage, list) else [one.advantage] * len(opinion)
        advantage = [mine + more for mine, more in zip(credit, opinion, strict=True)]
        found.append(replace(one, teacher=teacher, advantage=advantage))
    return found
