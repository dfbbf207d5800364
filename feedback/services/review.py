"""What reviewers decide about flagged turns, and what that does to training. Inside a tenant; all of it is audited.

An answer is about the turn, so it answers every flag of it that is open. A flag is settled once, when as many people
have answered as the project asks for; what comes later is kept beside it. An answer taken back takes its effect along.
"""

import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from feedback.consensus import Vote, settle
from feedback.models import (
    Flag,
    FlagResolution,
    FlagState,
    Outcome,
    ReviewDraft,
    ReviewReservation,
    ReviewResponse,
    Turn,
)
from feedback.triage import BY_HAND
from registry.errors import Conflict, InvalidInput, NotFound
from registry.services import audit, project_settings

MAX_NOTE = 4000
GOLD = (Outcome.ACCEPT, Outcome.REJECT)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a reviewer says about a turn."""

    resolution: str  # of FlagResolution
    reward: float | None = None  # in [-1, 1], exactly with `overridden`
    gold: str | None = None  # accept: the answer is good; reject: it is not; None: the reviewer does not say
    note: str = ""
    problem: str | None = None  # <benchmark>@<version>/<id> it becomes, held out: no longer trained on


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """What became of an answer."""

    turn: Turn
    flags: list[Flag]  # those it answers, as they are now
    responses: list[ReviewResponse]
    is_late: bool  # the flag was settled before: kept, without effect
    num_missing: int  # answers of other people that the flag still needs; 0 when it is settled


def num_needed(project_id: UUID) -> int:
    """How many people must answer before a flag is settled."""
    return int(project_settings(project_id).review_responses)


def respond(flag: Flag | int, answer: Answer, *, reviewer: str) -> Receipt:
    """Keep this person's answer and settle what it completes.

    Raises NotFound (the turn was deleted, too), InvalidInput naming the field, and Conflict when this person's answer
    stands already.
    """
    check(answer)
    with transaction.atomic():
        asked = _find(flag)
        turn = _lock(asked.turn_id)
        asked.refresh_from_db()
        is_late = asked.state == FlagState.RESOLVED
        flags = [asked] if is_late else _answered_together(asked, reviewer)
        if _standing(asked).filter(reviewer=reviewer).exists():
            raise Conflict("your answer to this stands already; undo it first to give another")
        responses = _keep(flags, answer, reviewer=reviewer, is_late=is_late)
        needed = num_needed(turn.project_id)
        missing = 0 if is_late else max(_settle_when_complete(one, turn, needed, actor=reviewer) for one in flags)
        _apply_to_training(turn)
        if is_late:
            _audit_response(asked, responses[0])
        ReviewReservation.objects.filter(turn=turn, reviewer=reviewer).delete()
        ReviewDraft.objects.filter(turn=turn, reviewer=reviewer).delete()
    return Receipt(turn=turn, flags=flags, responses=responses, is_late=is_late, num_missing=missing)


def undo(flag: Flag | int, *, reviewer: str) -> Receipt:
    """Take back what this person said about a flag, together with what the same answer said about others of the turn.

    A flag that lacks an answer then is open again and its effect on training is gone. Raises NotFound, and Conflict
    when there is no standing answer of this person.
    """
    with transaction.atomic():
        asked = _find(flag)
        turn = _lock(asked.turn_id)
        mine = _standing(asked).filter(reviewer=reviewer).first()
        if mine is None:
            raise Conflict("you have no answer here that stands")
        taken = list(
            ReviewResponse.objects.select_related("flag")
            .filter(submission=mine.submission, reviewer=reviewer, withdrawn_at__isnull=True)
            .order_by("flag_id")
        )
        for response in taken:
            response.withdrawn_at = timezone.now()
            response.save(update_fields=["withdrawn_at"])
        before = _training(turn)
        needed = num_needed(turn.project_id)
        missing = max(0 if response.is_late else _settle_anew(response.flag, needed) for response in taken)
        _apply_to_training(turn)
        for response in taken:
            audit(
                "undo",
                "flag",
                response.flag_id,
                actor=reviewer,
                before={"resolution": response.resolution, "turn": turn.turn_id, **before},
                after={"state": response.flag.state, **_training(turn)},
            )
    return Receipt(
        turn=turn, flags=[one.flag for one in taken], responses=taken, is_late=mine.is_late, num_missing=missing
    )


def last_answered(reviewer: str) -> ReviewResponse | None:
    """The newest answer of this person that stands: what a bare "undo" means."""
    mine = ReviewResponse.objects.filter(reviewer=reviewer, withdrawn_at__isnull=True)
    return mine.select_related("flag").order_by("-at", "-id").first()


def check(answer: Answer) -> None:
    """Raises InvalidInput naming the field that makes no sense."""
    if answer.resolution not in FlagResolution.values:
        raise InvalidInput(f"choose one of {', '.join(FlagResolution.values)}", field="resolution")
    if (answer.resolution == FlagResolution.OVERRIDDEN) != (answer.reward is not None):
        raise InvalidInput("a reward goes with `overridden`, and with nothing else", field="reward")
    if answer.reward is not None and not (math.isfinite(answer.reward) and -1 <= answer.reward <= 1):
        raise InvalidInput(f"found {answer.reward!r}; give a number from -1 to 1", field="reward")
    if answer.gold is not None and answer.gold not in GOLD:
        raise InvalidInput(f"found {answer.gold!r}; choose accept or reject", field="gold")
    if len(answer.note) > MAX_NOTE or "\x00" in answer.note:
        raise InvalidInput(f"a note has at most {MAX_NOTE:,} characters, none of them NUL", field="note")


def _find(flag: Flag | int) -> Flag:
    found = Flag.objects.filter(pk=flag if isinstance(flag, int) else flag.pk).first()
    if found is None:
        raise NotFound("this flag is gone: its turn was deleted")
    return found


def _lock(turn: int) -> Turn:
    """One answer about a turn at a time. Without its key, so that a reservation of the turn does not wait for this."""
    return Turn.objects.select_for_update(no_key=True).get(pk=turn)


def _answered_together(asked: Flag, reviewer: str) -> list[Flag]:
    """The flag and the turn's other open ones, without those that this person raised for somebody else to see."""
    others = Flag.objects.filter(turn=asked.turn_id, state=FlagState.OPEN).exclude(pk=asked.pk)
    others = others.exclude(raised_by=reviewer, rule=BY_HAND)
    answered = ReviewResponse.objects.filter(flag__in=others, reviewer=reviewer, withdrawn_at__isnull=True)
    return [asked, *others.exclude(pk__in=answered.values("flag_id")).order_by("id")]


def _standing(flag: Flag) -> QuerySet[ReviewResponse]:
    return ReviewResponse.objects.filter(flag=flag, withdrawn_at__isnull=True)


def _keep(flags: Sequence[Flag], answer: Answer, *, reviewer: str, is_late: bool) -> list[ReviewResponse]:
    submission, now = uuid.uuid4(), timezone.now()
    return ReviewResponse.objects.bulk_create(
        ReviewResponse(
            flag=flag,
            submission=submission,
            reviewer=reviewer,
            resolution=answer.resolution,
            reward=answer.reward,
            gold=answer.gold,
            problem=answer.problem,
            note=answer.note,
            is_late=is_late,
            at=now,
        )
        for flag in flags
    )


def _settle_when_complete(flag: Flag, turn: Turn, needed: int, *, actor: str) -> int:
    """How many answers are still missing; with 0 the flag is settled now."""
    answers = list(_standing(flag).filter(is_late=False).order_by("at", "id"))
    if len(answers) < needed:
        _audit_response(flag, answers[-1])
        return needed - len(answers)
    _write_settled(flag, answers, at=timezone.now())
    audit(
        "resolve",
        "flag",
        flag.pk,
        actor=actor,
        before={"state": FlagState.OPEN, "turn": turn.turn_id, "rule": flag.rule, **_training(turn)},
        after={"state": flag.state, "resolution": flag.resolution, "reward_override": flag.reward_override},
        reason=flag.note,
    )
    return 0


def _settle_anew(flag: Flag, needed: int) -> int:
    """After an answer went: by those that are left, or open again; how many are missing.

    What counted goes on counting, however few are asked for by now; late answers fill up, the earliest first.
    """
    standing = list(_standing(flag).order_by("at", "id"))
    if flag.state == FlagState.OPEN:
        return max(0, needed - len(standing))
    counted = [one for one in standing if not one.is_late]
    answers = counted + [one for one in standing if one.is_late][: max(0, needed - len(counted))]
    ReviewResponse.objects.filter(pk__in=[one.pk for one in answers]).update(is_late=False)
    if len(answers) >= needed:
        _write_settled(flag, answers, at=flag.resolved_at or timezone.now())
        return 0
    flag.state, flag.resolution, flag.resolved_at = FlagState.OPEN, None, None
    flag.reward_override, flag.note, flag.reviewer = None, "", None
    flag.save()
    return needed - len(answers)


def _write_settled(flag: Flag, answers: Sequence[ReviewResponse], *, at: datetime) -> None:
    verdict = settle([Vote(resolution=one.resolution, reward=one.reward) for one in answers])
    flag.state, flag.resolution, flag.resolved_at = FlagState.RESOLVED, verdict.resolution, at
    flag.reward_override = verdict.reward
    flag.reviewer = ", ".join(one.reviewer for one in answers)[:200]
    flag.note = "\n".join(one.note for one in answers if one.note)
    flag.save()


def _apply_to_training(turn: Turn) -> None:
    """The turn as its settled flags have it: out of training if any says so, with the newest override.

    One that became a problem is out, too, whatever was said beside it.
    """
    settled = Flag.objects.filter(turn=turn, state=FlagState.RESOLVED).order_by("resolved_at", "id")
    decided = list(settled.values_list("resolution", "reward_override"))
    overrides = [reward for resolution, reward in decided if resolution == FlagResolution.OVERRIDDEN]
    override = overrides[-1] if overrides else None
    problems = ReviewResponse.objects.filter(flag__turn=turn, problem__isnull=False, withdrawn_at__isnull=True)
    is_excluded = any(resolution == FlagResolution.EXCLUDED for resolution, _ in decided) or problems.exists()
    if override != turn.reward_override:
        turn.reward_revision += 1
    if (override, is_excluded) != (turn.reward_override, turn.is_excluded):
        turn.reward_override, turn.is_excluded = override, is_excluded
        turn.save(update_fields=["reward_override", "reward_revision", "is_excluded"])


def _training(turn: Turn) -> dict[str, bool | float | None]:
    return {"is_excluded": turn.is_excluded, "reward_override": turn.reward_override}


def _audit_response(flag: Flag, response: ReviewResponse) -> None:
    """An answer that settles nothing by itself."""
    after = {"resolution": response.resolution, "reward": response.reward, "is_late": response.is_late}
    audit("answer", "flag", flag.pk, actor=response.reviewer, after=after, reason=response.note)
