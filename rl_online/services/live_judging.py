"""Judges on live traffic: turns as they settle, sessions once they have ended; each once, whatever dies on the way.

A session has ended when nothing came for as long as its judge waits (`idle_s`), or the product says that the user left
(a signal `abandon` about it). One that goes on is judged again, and what was said before is superseded. A turn that
ended in an error is nobody's answer: it is skipped with the reason.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from evals.judging.pointwise import Item
from evals.models import JudgeDuty, LiveRating, RatingState, Subject
from evals.services.budgets import within_budget
from evals.services.call_cache import known_ratings
from evals.services.completers import completer_of
from evals.services.judges import judge_of
from evals.services.ratings import (
    RATE_JOB,
    Rated,
    close_without,
    live_duties,
    may_still,
    open_ratings,
    rate_all,
    record_rating,
    waiting,
)
from feedback.models import AgentSession, Turn, TurnPayload, UserSignal
from jobs import crash
from jobs.services import ClaimedJob, NotYet, enqueue
from registry.errors import InvalidInput
from registry.tenancy import tenant
from rl_online.collecting import LIVE_SOURCES, payloads_of

OPEN_JOB = "rl_online.open_ratings"
SESSION_JOB = "rl_online.rate_session"
TURNS_PER_JOB = 200
LOOK_EVERY_S = 60.0  # at a session that may go on: the user may be said to have left
MAX_TURNS = 200  # of a session, the newest
MAX_CHARS = 60_000  # of a session's transcript; what is in the middle goes first
SESSION_TASK = (
    "Serve the user over the whole conversation below, oldest exchange first. Mark the assistant's answers together."
)

__all__ = ["OPEN_JOB", "RATE_JOB", "SESSION_JOB", "on_turns_settled", "open_job", "rate_job", "session_job"]


def on_turns_settled(sender: Any, *, project_id: UUID, turn_ids: Sequence[int], **_: Any) -> None:
    """A job that looks who has to judge these; in the transaction that labelled them."""
    if not JudgeDuty.objects.exclude(live="").exists():
        return
    live = list(
        Turn.objects.filter(pk__in=turn_ids, source__in=LIVE_SOURCES).order_by("pk").values_list("pk", flat=True)
    )
    for start in range(0, len(live), TURNS_PER_JOB):
        enqueue(OPEN_JOB, project_id=project_id, payload={"turns": live[start : start + TURNS_PER_JOB]})


def open_job(job: ClaimedJob) -> None:
    """Open the ratings of these turns, and look at each of their sessions when it may have ended."""
    project_id = job.project_id
    assert project_id is not None
    with job.effect(), tenant(project_id):
        turns = list(Turn.objects.filter(pk__in=job.payload["turns"]).select_related("session").order_by("pk"))
        for duty in live_duties(Subject.TURN):
            open_ratings(duty, [_turn(turn) for turn in turns if _is_chosen(duty, turn.turn_id)])
        sessions = {turn.session_id: turn.session for turn in turns}
        for duty in live_duties(Subject.SESSION):
            for session in sessions.values():
                if _is_chosen(duty, session.session_id):
                    _look_later(project_id, duty, session)
        crash.point("task.rl_online.open_ratings.mid")


def _look_later(project_id: UUID, duty: JudgeDuty, session: AgentSession) -> None:
    payload = {"judge": duty.judge_id, "session": session.pk}
    enqueue(SESSION_JOB, project_id=project_id, payload=payload, key=f"{duty.judge_id}:{session.pk}")


def session_job(job: ClaimedJob) -> None:
    """Open the rating of a session that has ended; one that has not is looked at again."""
    project_id = job.project_id
    assert project_id is not None
    with tenant(project_id):
        duty = JudgeDuty.objects.filter(judge_id=job.payload["judge"], live=Subject.SESSION).select_related("judge")
        session = AgentSession.objects.filter(pk=job.payload["session"]).first()
        found = duty.first()
        left_s = 0.0
        if found is not None and session is not None and not _has_left(session):
            left_s = (_idle_at(found, session) - timezone.now()).total_seconds()
    if found is None or session is None:
        return
    if left_s > 0:
        raise NotYet(min(left_s, LOOK_EVERY_S), "waits until the session has ended")
    with job.effect(), tenant(project_id):
        turns = _turns(session)
        if all(turn.settled_at for turn in turns):  # one that is open brings this job again when it settles
            open_ratings(found, [_session(session, turns)])
        crash.point("task.rl_online.rate_session.mid")


def rate_job(job: ClaimedJob) -> None:
    """Ask the judge for this job's ratings, no transaction open; what cannot be had is blocked with the reason."""
    project_id = job.project_id
    assert project_id is not None
    with tenant(project_id):
        rows = [row for row in waiting(job.payload["ratings"])]
        refused = {row.pk: reason for row in rows if (reason := may_still(row))}
        items = _items([row for row in rows if row.pk not in refused])
        shown = [row for row in rows if row.pk in items]
        ratings, blocked = [], ""
        if shown:
            version = shown[0].judge
            judge = judge_of(version)
            cache = known_ratings(judge, items.values())
            try:
                completer = within_budget(version, completer_of(version))
            except InvalidInput as error:
                blocked = error.message
    if shown and not blocked:
        ratings = asyncio.run(rate_all(completer, judge, [items[row.pk] for row in shown], cache))
    crash.point("task.evals.rate_live.mid")
    with job.effect(), tenant(project_id):
        for row in rows:
            if row.pk in refused:
                close_without(row, RatingState.SKIPPED, refused[row.pk])
            elif row.pk not in items:
                close_without(row, RatingState.SKIPPED, "its text is not kept any more")
            elif blocked:
                close_without(row, RatingState.ERROR, blocked)
        for row, rating in zip(shown, ratings, strict=False):
            record_rating(row, rating)


def _turn(turn: Turn) -> Rated:
    return Rated(
        subject=Subject.TURN,
        ref=turn.turn_id,
        rated=turn.checkpoint or turn.model or "",
        num_chars=turn.num_completion_chars,
        fault=f"the turn ended in an error: {turn.error}"[:500] if turn.error else "",
    )


def _session(session: AgentSession, turns: Sequence[Turn]) -> Rated:
    answered = [turn for turn in turns if not turn.error]
    names = "\n".join(turn.turn_id for turn in turns)
    fault = ""
    if not answered:
        fault = f"every turn ended in an error: {turns[-1].error}"[:500] if turns else "it has no turn"
    return Rated(
        subject=Subject.SESSION,
        ref=session.session_id,
        revision=hashlib.sha256(names.encode()).hexdigest(),
        rated=(answered[-1].checkpoint or answered[-1].model or "") if answered else "",
        num_chars=sum(turn.num_completion_chars for turn in answered),
        fault=fault,
    )


def _turns(session: AgentSession) -> list[Turn]:
    """The newest, oldest first."""
    newest = Turn.objects.filter(session=session, source__in=LIVE_SOURCES).order_by("-index", "-at", "-pk")[:MAX_TURNS]
    return list(newest)[::-1]


def _idle_at(duty: JudgeDuty, session: AgentSession) -> datetime:
    """When it will have been idle long enough, if nothing comes; by when turns arrived, not by the sender's clock."""
    last = Turn.objects.filter(session=session).order_by("-received_at").values_list("received_at", flat=True).first()
    return (last or timezone.now()) + timedelta(seconds=duty.idle_s)


def _has_left(session: AgentSession) -> bool:
    """The user was said to have left, and no turn came since."""
    left = UserSignal.objects.filter(session_ref=session.session_id, kind="abandon").order_by("-received_at").first()
    return left is not None and not Turn.objects.filter(session=session, received_at__gt=left.received_at).exists()


def _is_chosen(duty: JudgeDuty, ref: str) -> bool:
    """A fixed share, by the id alone, so that asking twice chooses alike."""
    drawn = int.from_bytes(hashlib.sha256(f"{duty.judge_id}:{ref}".encode()).digest()[:8])
    return drawn < duty.share * 2**64


def _items(rows: Sequence[LiveRating]) -> dict[UUID, Item]:
    """What the judge is shown, by rating; absent where the text is gone. Inside a tenant."""
    of_turn = {row.subject_ref: row for row in rows if row.subject == Subject.TURN}
    turns = list(Turn.objects.filter(turn_id__in=of_turn))
    payloads = payloads_of(turns)
    items = {
        of_turn[ref].pk: Item(key=ref, task=_task(payload), answer=_answer(payload))
        for ref, payload in payloads.items()
    }
    for row in rows:
        if row.subject == Subject.SESSION and (item := _session_item(row)) is not None:
            items[row.pk] = item
    return items


def _session_item(row: LiveRating) -> Item | None:
    session = AgentSession.objects.filter(session_id=row.subject_ref).first()
    turns = [turn for turn in _turns(session) if not turn.error] if session else []
    payloads = payloads_of(turns)
    said = [payloads[turn.turn_id] for turn in turns if turn.turn_id in payloads]
    if not said:
        return None
    text = "\n\n".join(f"USER: {_last_asked(one)}\nASSISTANT: {_answer(one)}" for one in said)
    if len(text) > MAX_CHARS:
        half = MAX_CHARS // 2
        text = f"{text[:half]}\n[{len(text) - MAX_CHARS} characters left out]\n{text[-half:]}"
    return Item(key=row.subject_ref, task=SESSION_TASK, answer=text)


def _task(payload: TurnPayload) -> Any:
    return payload.messages if payload.messages is not None else payload.prompt


def _answer(payload: TurnPayload) -> str:
    calls = f"\n[tool calls: {payload.tool_calls}]" if payload.tool_calls else ""
    return f"{payload.completion}{calls}"


def _last_asked(payload: TurnPayload) -> str:
    if payload.messages is None:
        return payload.prompt or ""
    asked = [one for one in payload.messages if one.get("role") != "assistant"]
    return str(asked[-1].get("content", "")) if asked else ""
