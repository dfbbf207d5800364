"""Distillation: the policy's own answers, and a teacher that says at each token what should have come.

The teacher is another checkpoint here, asked for all its logits while the update runs, or the policy itself with a hint
in its prompt (see `services.hints`). Only answers of the serving line are taken, within the staleness cap.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db.models import Exists, OuterRef

from feedback.models import Turn, TurnPayload
from registry.errors import InvalidInput
from registry.models import Checkpoint
from registry.services import find_checkpoint
from rl_online.collecting import (
    LIVE_SOURCES,
    RL,
    fault_of,
    is_complete,
    num_tokens_of,
    payloads_of,
    rewarded,
    scores_of,
    slice_of,
    user_hash,
)
from rl_online.models import BatchSample, UpdateKind
from rl_online.policy.vocabulary import vocabulary_of
from rl_online.rewards.baseline import next_baselines
from rl_online.rewards.batch import Batch, Sample
from rl_online.rewards.composite import parse_reward_spec
from rl_online.rewards.heldout import choose_heldout
from rl_online.services.hints import SOURCES, find_hints, hinted
from rl_online.services.plans import folder_of
from rl_online.services.stages.stage import Ask, Contents, Option, Ready, Stage, spread
from rl_online.services.tokens import encode_texts, num_token_ids, token_fault
from rl_online.training.errors import ContradictoryUpdate
from rl_online.training.refusals import refuse_teacher, refuse_vocabulary
from rl_online.training.samples import DISTILL, select_samples
from rl_online.training.teaching import HINTED_PROMPT, with_teaching

HINT = "hint"  # the teacher that is the policy itself
LOOKED_AT = 4  # times as many turns as are wanted


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """An answer that something can be said about."""

    turn: Turn
    payload: TurnPayload
    hints: Mapping[str, str]  # source -> hint; empty where the teacher needs none
    reward: float | None  # None: only the teacher's word is learnt


def look(asked: Ask) -> Ready:
    teacher_of(asked)
    found, dropped = find_lessons(asked)
    counts = [num_tokens_of(one.turn) for one in found]
    return Ready(
        num_ready=len(found),
        num_needed=asked.options["at_least"],
        num_excluded=dict(dropped),
        sources=dict(Counter(source for one in found for source in one.hints or {"answers": ""})),
        num_tokens=sum(count for count in counts if count is not None),
        num_uncounted=sum(count is None for count in counts),
    )


def gather(asked: Ask, at_most: int | None) -> Contents:
    """Raises Unavailable, InvalidInput for a teacher or settings that do not fit."""
    teacher = teacher_of(asked)
    found, dropped = find_lessons(asked)
    chosen = found if at_most is None else spread(found, at_most)
    prompts = encode_texts(
        asked.line.serving,
        {one.turn.turn_id: hinted(one.payload, "\n".join(one.hints.values())) for one in chosen if one.hints},
    )
    usable: list[Lesson] = []
    num_ids = num_token_ids(asked.line.serving)
    for one in chosen:
        read = prompts.get(one.turn.turn_id, []) if one.hints else one.payload.prompt_token_ids
        completion = one.payload.completion_token_ids
        if not read:
            dropped["the hint cannot be encoded"] += 1
        elif fault := token_fault([*read, *completion], one.payload.logprobs or [], num_ids=num_ids):
            dropped[fault] += 1
        else:
            usable.append(one)
    aside = choose_heldout([one.turn.turn_id for one in usable], at_most=asked.config.heldout_samples)
    expected = _expected(usable)
    samples = [
        _sample(one, asked, prompts.get(one.turn.turn_id), baseline, is_heldout=one.turn.turn_id in aside)
        for one, baseline in zip(usable, expected, strict=True)
    ]
    _refuse(samples, asked, has_teacher=teacher is not None)
    return Contents(
        num_units=len(usable),
        samples=samples,
        lineage=[_lineage_of(one, sample) for one, sample in zip(usable, samples, strict=True)],
        dropped=dict(+dropped),
        inputs={"teacher": HINT}
        if teacher is None
        else {"teacher": str(teacher), "teacher_digest": teacher.tree_digest},
    )


def folders(inputs: Mapping[str, Any]) -> dict[str, Path]:
    if inputs["teacher"] == HINT:
        return {}
    return {"teacher": folder_of(find_checkpoint(inputs["teacher"]))}


def teacher_of(asked: Ask) -> Checkpoint | None:
    """None: the policy itself. Raises InvalidInput or NotFound where it cannot teach this policy."""
    name = asked.options["teacher"]
    if not asked.config.distill_weight:
        raise InvalidInput("distill_weight is 0, so nothing would be learnt of a teacher", field="distill_weight")
    if name == HINT:
        return None
    teacher = find_checkpoint(name)
    if teacher.pk == asked.line.serving.pk:
        raise InvalidInput(f"{teacher} is the policy itself; it can teach itself by a hint alone", field="teacher")
    if teacher.files_deleted_at is not None:
        raise InvalidInput(f"the files of {teacher} were deleted ({teacher.files_deleted_reason})", field="teacher")
    try:
        refuse_vocabulary(vocabulary_of(folder_of(teacher)), vocabulary_of(folder_of(asked.line.serving)))
    except (ContradictoryUpdate, ValueError, OSError) as error:
        raise InvalidInput(str(error), field="teacher") from None
    return teacher


def find_lessons(asked: Ask) -> tuple[list[Lesson], Counter[str]]:
    """The newest answers of the line that no batch of this kind has taken, in their order; why others are left out."""
    most, sources = asked.options["at_most"], [name for name in SOURCES if asked.options[name]]
    is_hinted = asked.options["teacher"] == HINT
    if is_hinted and not sources:
        raise InvalidInput(f"a hint is the teacher and each of {', '.join(SOURCES)} is off", field="teacher")
    dropped: Counter[str] = Counter()
    turns = []
    for turn in _unspent(asked)[: LOOKED_AT * most]:
        reason = fault_of(turn, asked.line, kind=RL, max_lag=asked.config.max_lag)
        if reason is None or (reason == "incomplete" and not _needs_logprobs(asked)):
            turns.append(turn)
        else:
            dropped[reason] += 1
    payloads = {name: one for name, one in payloads_of(turns).items() if one.completion_token_ids}
    hints = find_hints(payloads, sources=sources) if is_hinted else {}
    found = []
    for turn in turns:
        if turn.turn_id not in payloads or not payloads[turn.turn_id].prompt_token_ids:
            dropped["no token ids"] += 1
        elif is_hinted and turn.turn_id not in hints:
            dropped["no hint"] += 1
        else:
            payload = payloads[turn.turn_id]
            found.append(Lesson(turn=turn, payload=payload, hints=hints.get(turn.turn_id, {}), reward=None))
    return _with_rewards(found[:most], asked)[::-1], dropped


def _needs_logprobs(asked: Ask) -> bool:
    """Whether each answer's log-probabilities at sampling are part of the loss, so that one without them is no use."""
    return asked.config.distills_sampled or asked.config.base_kl > 0


def _unspent(asked: Ask) -> Any:
    spent = BatchSample.objects.filter(kind=UpdateKind.DISTILL, turn_ref=OuterRef("turn_id"), is_correction=False)
    versions = [one.version for one in asked.line.checkpoints[: asked.config.max_lag + 1]]
    turns = Turn.objects.filter(~Exists(spent), settled_at__isnull=False, label__isnull=False)
    turns = turns.filter(policy=asked.policy.name, version__in=versions, source__in=LIVE_SOURCES)
    return turns.select_related("label", "session").order_by("-settled_at", "-turn_id")


def _with_rewards(found: list[Lesson], asked: Ask) -> list[Lesson]:
    """Where the option asks for it and a ratio loss may take the answer; of others the teacher's word alone is left."""
    if not asked.options["reward"]:
        return found
    spec = parse_reward_spec(asked.plan.reward_spec.body)
    scores = scores_of([one.turn.turn_id for one in found])
    return [
        Lesson(
            turn=one.turn,
            payload=one.payload,
            hints=one.hints,
            reward=rewarded(one.turn, spec, scores.get(one.turn.turn_id, {})).value if is_complete(one.turn) else None,
        )
        for one in found
    ]


def _expected(lessons: list[Lesson]) -> list[float]:
    """Baselines of this batch alone: the running ones follow what online updates see."""
    pairs = [(slice_of(one.turn, one.payload), one.reward) for one in lessons if one.reward is not None]
    values = iter(next_baselines({}, [(name, value) for name, value in pairs if value is not None]).per_sample)
    return [0.0 if one.reward is None else next(values) for one in lessons]


def _sample(one: Lesson, asked: Ask, prompt: list[int] | None, baseline: float, *, is_heldout: bool) -> Sample:
    turn, payload = one.turn, one.payload
    given, said = payload.prompt_token_ids, payload.completion_token_ids
    versions = [-1] * len(said)
    for first, end, version in payload.weight_versions or [[0, len(said), turn.version]]:
        versions[first:end] = [version] * (end - first)
    return Sample(
        token_ids=[*given, *said],
        prompt_length=len(given),
        mask=[0] * len(given) + [1] * len(said),
        behaviour_logprobs=[0.0] * len(given) + list(payload.logprobs) if is_complete(turn) else None,
        reward=one.reward or 0.0,
        baseline=baseline,
        versions=[-1] * len(given) + versions,
        row={
            "turn": turn.turn_id,
            "session": turn.session.session_id,
            "user_hash": user_hash(asked.policy.project_id, turn.user),
            "kind": DISTILL if one.reward is None else RL,
            "stage": str(UpdateKind.DISTILL),
            "slice": slice_of(turn, payload),
            "reward_breakdown": {},
            "label_reason": turn.label.reason if turn.label else "",
            "source": turn.source,
            "sampling": turn.sampling or {},
            **({HINTED_PROMPT: prompt, "hints": sorted(one.hints)} if prompt else {}),
            **({"is_heldout": True} if is_heldout else {}),
        },
    )


def _lineage_of(one: Lesson, sample: Sample) -> BatchSample:
    return BatchSample(
        turn_ref=one.turn.turn_id,
        session_ref=sample.row["session"],
        user_hash=sample.row["user_hash"],
        label_id=one.turn.label_id,
        reward_revision=one.turn.reward_revision,
        slice=sample.row["slice"][:200],
        reward=sample.reward,
        baseline=sample.baseline,
        is_heldout=sample.is_heldout,
    )


def _refuse(samples: list[Sample], asked: Ask, *, has_teacher: bool) -> None:
    """What the updater would refuse is refused here."""
    batch, lineage = Batch(digest="", samples=samples), sorted(one.version for one in asked.line.checkpoints)
    selection = select_samples(batch, asked.config, lineage)
    taught = with_teaching(selection, batch, asked.config, has_teacher=has_teacher)
    try:
        if samples:
            refuse_teacher(taught.samples, asked.config, has_teacher=has_teacher)
    except ContradictoryUpdate as error:
        raise InvalidInput(str(error), field="distill_estimator") from None


STAGE = Stage(
    kind=UpdateKind.DISTILL,
    title="Distillation",
    purpose="Learn on the policy's own answers what a teacher would have said: a checkpoint, or itself with a hint.",
    unit="answers",
    options=(
        Option(name="teacher", default=HINT, help="hint: the policy itself; or a checkpoint here, e.g. editor@3"),
        Option(name="reviews", default=True, help="of a hint: reviewers' notes"),
        Option(name="tests", default=True, help="of a hint: what failing tests said"),
        Option(name="comments", default=True, help="of a hint: what users said about the answer, or next"),
        Option(name="edits", default=True, help="of a hint: what users changed"),
        Option(name="reward", default=False, help="learn from the answer's reward too, as an online update does"),
        Option(name="at_least", default=16, help="answers, fewer are never trained on"),
        Option(name="at_most", default=512, help="answers, the newest"),
    ),
    settings=(
        "distill_weight", "distill_beta", "distill_estimator", "base_kl", "base_kl_estimator", "learning_rate",
        "epochs", "minibatch_size", "general_texts",
    ),
    preset={"distill_weight": 1.0},
    look=look,
    gather=gather,
    folders=folders,
)  # fmt: skip
