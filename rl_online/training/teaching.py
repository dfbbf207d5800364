"""What a teacher has to say about each sample: found in its row of the batch, or to be asked of a network.

Pure and torch-free. A teacher behind an address was asked before the batch was sealed; one in a folder, or the policy
itself with a hint in its prompt, is asked while the update runs.
"""

from dataclasses import replace

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
