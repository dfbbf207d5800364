"""Distillation: the policy's own answers, and a teacher that says at each token what should have come.

The teacher is another checkpoint here, asked for all its logits while the update runs; or the policy itself with a
hint in its prompt (see `services.hints`); or a model behind an address, asked before (see `services.teachers`): its
answer is imitated and is the hint, or what it holds likely at each token of ours is learnt. Only answers of the serving
line are taken, within the staleness cap, or drawn anew.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from feedback.models import Turn, TurnPayload
from registry.errors import Conflict, InvalidInput
from registry.models import Checkpoint
from registry.services import find_checkpoint
from rl_online.collecting import RL, is_complete, num_tokens_of, rewarded, scores_of, slice_of, user_hash
from rl_online.models import BatchSample, TeacherAnswer, TeacherState, UpdateKind
from rl_online.policy.vocabulary import vocabulary_of
from rl_online.rewards.baseline import next_baselines
from rl_online.rewards.batch import Batch, Sample
from rl_online.rewards.composite import parse_reward_spec
from rl_online.rewards.heldout import choose_heldout
from rl_online.services.drawing import Drawn, draw_answers
from rl_online.services.hints import SOURCES, find_hints, hinted
from rl_online.services.locks import lock_until_commit
from rl_online.services.own_answers import own_answers
from rl_online.services.plans import folder_of
from rl_online.services.stages.stage import Ask, Contents, Option, Ready, Stage, spread
from rl_online.services.teachers import LOGPROBS, TEXT, Teacher, kept_answers
from rl_online.services.tokens import Answer, Tokens, answers_as_tokens, encode_texts, num_token_ids, token_fault
from rl_online.training.errors import ContradictoryUpdate
from rl_online.training.refusals import refuse_teacher, refuse_vocabulary
from rl_online.training.samples import DISTILL, select_samples
from rl_online.training.teaching import HINTED_PROMPT, TEACHER_LOGPROBS, TEACHER_TOP, with_teaching

HINT = "hint"  # the teacher that is the policy itself
FRESH = "fresh"
MAX_DRAWN = 16_384  # tokens drawn while somebody waits for the update to start


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """An answer that something can be said about."""

    turn: Turn
    payload: TurnPayload
    hints: Mapping[str, str]  # source -> hint; empty where the teacher needs none
    answer: TeacherAnswer | None  # of a teacher behind an address
    reward: float | None  # None: only the teacher's word is learnt


def look(asked: Ask) -> Ready:
    teacher_of(asked)
    found, dropped = find_lessons(asked)
    counts = [num_tokens_of(one.turn) for one in found]
    return Ready(
        num_ready=len(found),
        num_needed=asked.options["at_least"],
        num_excluded=dict(dropped),
        sources=dict(Counter(source for one in found for source in one.hints or ["answers"])),
        num_tokens=sum(count for count in counts if count is not None),
        num_uncounted=sum(count is None for count in counts),
    )


def gather(asked: Ask, at_most: int | None) -> Contents:
    """Raises Unavailable, InvalidInput for a teacher or settings that do not fit."""
    teacher = teacher_of(asked)
    found, dropped = find_lessons(asked)
    chosen = found if at_most is None else spread(found, at_most)
    read = _read(chosen, asked)
    usable = []
    num_ids = num_token_ids(asked.line.serving)
    for one in chosen:
        prompt, said = read.prompt_of(one), read.said_of(one)
        if not prompt:
            dropped["the hint cannot be encoded"] += 1
        elif said is None:
            dropped["no answer came to its end"] += 1
        elif fault := token_fault([*prompt, *said.token_ids], said.logprobs, num_ids=num_ids):
            dropped[fault] += 1
        else:
            usable.append(one)
    aside = choose_heldout([one.turn.turn_id for one in usable], at_most=asked.config.heldout_samples)
    own = [
        _sample(one, asked, read, baseline, is_heldout=one.turn.turn_id in aside)
        for one, baseline in zip(usable, _expected(usable), strict=True)
    ]
    imitated = [
        _imitated(one, asked, read.answers[one.turn.turn_id], is_heldout=one.turn.turn_id in aside)
        for one in usable
        if one.turn.turn_id in read.answers
    ]
    samples = [*(own if asked.config.distill_weight else []), *(imitated if asked.config.ce_weight else [])]
    _refuse(samples, asked, has_teacher=isinstance(teacher, Checkpoint))
    return Contents(
        num_units=len(usable),
        samples=samples,
        lineage=[_lineage_of(one, sample) for one, sample in zip(usable, own, strict=True)],
        dropped=dict(+dropped),
        inputs=_inputs(teacher, usable),
    )


@dataclass(frozen=True, kw_only=True)
class Read:
    """Token ids, by turn."""

    hinted: Mapping[str, list[int]]  # the prompt with a hint in it
    drawn: Mapping[str, Drawn] | None  # our answer drawn anew; None: the recorded one
    answers: Mapping[str, Tokens]  # a teacher's own answer to our prompt

    def said_of(self, one: Lesson) -> Drawn | None:
        """Our answer; None where none could be drawn. A recorded one without log-probabilities has an empty list."""
        if self.drawn is not None:
            return self.drawn.get(one.turn.turn_id)
        ids = one.payload.completion_token_ids
        versions = [-1] * len(ids)
        for first, end, version in one.payload.weight_versions or [[0, len(ids), one.turn.version]]:
            versions[first:end] = [version] * (end - first)
        logprobs = list(one.payload.logprobs) if is_complete(one.turn) else []
        return Drawn(token_ids=list(ids), logprobs=logprobs, versions=versions)

    def prompt_of(self, one: Lesson) -> list[int]:
        """What the teacher reads before our answer; nothing where it could not be encoded."""
        return self.hinted.get(one.turn.turn_id, []) if _hint_of(one) else one.payload.prompt_token_ids


def _read(lessons: list[Lesson], asked: Ask) -> Read:
    texts = [
        Answer(turn=one.turn, payload=one.payload, text=_text_of(one.answer, asked))
        for one in lessons
        if one.answer is not None and one.answer.text
    ]
    tokens = answers_as_tokens(asked.line, texts) if asked.config.ce_weight else {}
    hints = {one.turn.turn_id: hinted(one.payload, hint) for one in lessons if (hint := _hint_of(one))}
    prompts = {one.turn.turn_id: one.payload.prompt_token_ids for one in lessons}
    is_fresh = asked.options["answers"] == FRESH
    return Read(
        drawn=_draw(prompts, asked) if is_fresh else None,
        hinted=encode_texts(asked.line.serving, hints),
        answers={one.turn.turn_id: tokens[one.key] for one in texts if one.key in tokens},
    )


def _draw(prompts: Mapping[str, list[int]], asked: Ask) -> dict[str, Drawn]:
    """Raises InvalidInput for more than MAX_DRAWN, Conflict while another transaction draws for this policy."""
    each = asked.options["max_tokens"]
    if len(prompts) * each > MAX_DRAWN:
        raise InvalidInput(
            f"{len(prompts)} fresh answers of up to {each} tokens are more than the {MAX_DRAWN:,} tokens that may be "
            "drawn at once; lower at_most or max_tokens, or take answers=settled",
            field="at_most",
        )
    if not lock_until_commit(drawing_lock(asked)):
        raise Conflict(f"fresh answers of {asked.policy.name} are being drawn already; look at its updates")
    return draw_answers(asked.line.serving, prompts, max_tokens=each)


def drawing_lock(asked: Ask) -> str:
    return f"drawing:{asked.policy.id}"


def _hint_of(one: Lesson) -> str:
    if one.answer is not None and one.answer.text:
        return f"a good answer is\n{one.answer.text}"
    return "\n".join(one.hints.values())


def _text_of(answer: TeacherAnswer, asked: Ask) -> str:
    """What is imitated; its thinking only where that is asked for, and apart from the answer."""
    if asked.options["reasoning"] == "drop" or not answer.reasoning:
        return answer.text
    return f"<think>\n{answer.reasoning.strip()}\n</think>\n\n{answer.text}"


def _inputs(teacher: "Checkpoint | Teacher | None", usable: list[Lesson]) -> dict[str, Any]:
    """Who taught: weights by their digest, a model by the name that its price card has."""
    if teacher is None:
        return {"teacher": HINT}
    if isinstance(teacher, Checkpoint):
        return {"teacher": str(teacher), "teacher_digest": teacher.tree_digest}
    costs = [one.answer.cost_usd for one in usable if one.answer is not None]
    cost = sum((cost for cost in costs if cost is not None), Decimal(0))
    priced = {} if None in costs else {"teacher_usd": f"{cost.normalize():f}"}
    return {"teacher": teacher.model, "address": teacher.address, "wants": teacher.wants, **priced}


def folders(inputs: Mapping[str, Any]) -> dict[str, Path]:
    if "teacher_digest" not in inputs:
        return {}
    return {"teacher": folder_of(find_checkpoint(inputs["teacher"]))}


def teacher_of(asked: Ask) -> Checkpoint | Teacher | None:
    """None: the policy itself. Raises InvalidInput or NotFound where it cannot teach this policy."""
    name, elsewhere = asked.options["teacher"], _behind_an_address(asked)
    if asked.options["answers"] == FRESH and (name == HINT or elsewhere or asked.options["reward"]):
        raise InvalidInput(
            "a hint, a model's word and a reward are about the answer that was given; fresh ones take a checkpoint as "
            "teacher and no reward",
            field="answers",
        )
    if elsewhere is not None and elsewhere.wants == TEXT and asked.config.ce_weight:
        return elsewhere
    if not asked.config.distill_weight:
        raise InvalidInput("distill_weight is 0, so nothing would be learnt of a teacher", field="distill_weight")
    if elsewhere is not None:
        return elsewhere
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
    sources = [name for name in SOURCES if asked.options[name]]
    teacher = _behind_an_address(asked)
    is_hinted = teacher is None and asked.options["teacher"] == HINT
    if is_hinted and not sources:
        raise InvalidInput(f"a hint is the teacher and each of {', '.join(SOURCES)} is off", field="teacher")
    own = own_answers(
        asked.line,
        max_lag=asked.config.max_lag,
        most=asked.options["at_most"],
        needs_logprobs=asked.options["answers"] != FRESH
        and (asked.config.distills_sampled or asked.config.base_kl > 0),
    )
    hints = find_hints(own.payloads, sources=sources) if is_hinted else {}
    said = kept_answers(teacher, own.turns) if teacher else {}
    dropped = own.dropped
    found = []
    for turn in own.turns:
        answer = said.get(turn.pk)
        reason = _why_not(turn, answer, is_hinted=is_hinted, is_asked=teacher is not None, hints=hints)
        if reason is not None:
            dropped[reason] += 1
            continue
        payload = own.payloads[turn.turn_id]
        found.append(Lesson(turn=turn, payload=payload, hints=hints.get(turn.turn_id, {}), answer=answer, reward=None))
    return _with_rewards(found[: asked.options["at_most"]], asked)[::-1], +dropped


def _why_not(
    turn: Turn, answer: TeacherAnswer | None, *, is_hinted: bool, is_asked: bool, hints: Mapping[str, Any]
) -> str | None:
    if is_hinted and turn.turn_id not in hints:
        return "no hint"
    if not is_asked:
        return None
    if answer is None:
        return "the teacher was not asked"
    return None if answer.state == TeacherState.ANSWERED else f"teacher: {answer.state}"


def _behind_an_address(asked: Ask) -> Teacher | None:
    if not asked.options["address"]:
        return None
    wants = TEXT if asked.config.distill_estimator == "logits" else LOGPROBS
    return Teacher(model=asked.options["teacher"], address=asked.options["address"], wants=wants)


def _with_rewards(found: list[Lesson], asked: Ask) -> list[Lesson]:
    """Where the option asks for it and a ratio loss may take the answer; of others the teacher's word alone is left."""
    if not asked.options["reward"]:
        return found
    spec = parse_reward_spec(asked.plan.reward_spec.body)
    scores = scores_of([one.turn.turn_id for one in found])
    return [
        replace(
            one,
            reward=rewarded(one.turn, spec, scores.get(one.turn.turn_id, {})).value if is_complete(one.turn) else None,
        )
        for one in found
    ]


def _expected(lessons: list[Lesson]) -> list[float]:
    """Baselines of this batch alone: the running ones follow what online updates see."""
    pairs = [(slice_of(one.turn, one.payload), one.reward) for one in lessons if one.reward is not None]
    values = iter(next_baselines({}, [(name, value) for name, value in pairs if value is not None]).per_sample)
    return [0.0 if one.reward is None else next(values) for one in lessons]


def _sample(one: Lesson, asked: Ask, read: Read, baseline: float, *, is_heldout: bool) -> Sample:
    """The policy's own answer with what its teacher says, or is to read."""
    given, said = one.payload.prompt_token_ids, read.said_of(one)
    assert said is not None
    likely = one.answer.likely if one.answer is not None else None
    word: dict[str, Any] = {}
    if _hint_of(one):
        word = {HINTED_PROMPT: read.prompt_of(one), "hints": sorted(one.hints) or ["teacher"]}
    elif likely:
        word = {
            TEACHER_LOGPROBS: [0.0] * len(given) + [own for own, _ in likely],
            TEACHER_TOP: [top for _, top in likely],
        }
    return Sample(
        token_ids=[*given, *said.token_ids],
        prompt_length=len(given),
        mask=[0] * len(given) + [1] * len(said.token_ids),
        behaviour_logprobs=[0.0] * len(given) + said.logprobs if said.logprobs else None,
        reward=one.reward or 0.0,
        baseline=baseline,
        versions=[-1] * len(given) + said.versions,
        row=_row(one, asked, DISTILL if one.reward is None else RL, is_heldout=is_heldout) | word,
    )


def _imitated(one: Lesson, asked: Ask, tokens: Tokens, *, is_heldout: bool) -> Sample:
    """The teacher's answer to our prompt."""
    given, said = tokens.prompt, tokens.completion
    row = _row(one, asked, "ce", is_heldout=is_heldout)
    return Sample(
        token_ids=[*given, *said],
        prompt_length=len(given),
        mask=[0] * len(given) + [1] * len(said),
        behaviour_logprobs=None,
        reward=0.0,
        baseline=0.0,
        versions=[-1] * (len(given) + len(said)),
        row=row | {"label_reason": "a teacher's answer", "teacher": asked.options["teacher"]},
    )


def _row(one: Lesson, asked: Ask, kind: str, *, is_heldout: bool) -> dict[str, Any]:
    turn, is_fresh = one.turn, asked.options["answers"] == FRESH
    return {
        "turn": turn.turn_id,
        "session": turn.session.session_id,
        "user_hash": user_hash(asked.policy.project_id, turn.user),
        "kind": kind,
        "stage": str(UpdateKind.DISTILL),
        "slice": slice_of(turn, one.payload),
        "reward_breakdown": {},
        "label_reason": turn.label.reason if turn.label and not is_fresh else "",
        "source": turn.source,
        "sampling": {"temperature": 1.0, "top_p": 1.0, "top_k": 0} if is_fresh else turn.sampling or {},
        **({"is_heldout": True} if is_heldout else {}),
    }


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
    if samples and asked.config.distills_sampled and any(_temperature(one) != 1 for one in samples if not has_teacher):
        raise InvalidInput(
            "an answer was drawn at another temperature than 1, at which its teacher spoke; choose top_k",
            field="distill_estimator",
        )
    batch, lineage = Batch(digest="", samples=samples), sorted(one.version for one in asked.line.checkpoints)
    selection = select_samples(batch, asked.config, lineage)
    taught = with_teaching(selection, batch, asked.config, has_teacher=has_teacher)
    try:
        if samples:
            refuse_teacher(taught.samples, asked.config, has_teacher=has_teacher)
    except ContradictoryUpdate as error:
        raise InvalidInput(str(error), field="distill_estimator") from None


def _temperature(sample: Sample) -> float:
    return float((sample.row.get("sampling") or {}).get("temperature") or 0)


STAGE = Stage(
    kind=UpdateKind.DISTILL,
    title="Distillation",
    purpose="Learn on the policy's own answers what a teacher would have said: a checkpoint, or itself with a hint.",
    unit="answers",
    options=(
        Option(
            name="teacher", default=HINT, help="hint: the policy itself; a checkpoint, e.g. editor@3; or a model's name"
        ),
        Option(name="address", default="", help="of that model, which was asked before by strop teach; else empty"),
        Option(
            name="reasoning", default="drop", choices=("drop", "train"), help="what becomes of that model's thinking"
        ),
        Option(name="reviews", default=True, help="of a hint: reviewers' notes"),
        Option(name="tests", default=True, help="of a hint: what failing tests said"),
        Option(name="comments", default=True, help="of a hint: what users said about the answer, or next"),
        Option(name="edits", default=True, help="of a hint: what users changed"),
        Option(
            name="answers", default="settled", choices=("settled", FRESH), help="those given, or drawn anew"
        ),
        Option(name="max_tokens", default=256, help="of an answer drawn anew; one that goes on is left out"),
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
