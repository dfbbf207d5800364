"""What came in and what it means, through the API: sessions, turns, flags, accept shares, alarms."""

from dataclasses import asdict
from datetime import datetime
from typing import Any, Literal

from django.db.models import QuerySet
from ninja import Field, Query, Router, Schema

from feedback.models import AgentSession, Flag, Turn, TurnPayload, UserSignal
from feedback.selectors import accept_share
from registry.errors import NotFound
from rl_online.models import Alarm
from strop.api.access import READ, ApiRequest, in_project
from strop.api.paging import Asked, Page, page_of, span_of

router = Router(tags=["Observed"])


class SessionOut(Schema):
    id: str = Field(alias="session_id")
    user: str | None
    surface: str | None
    first_at: datetime
    last_at: datetime
    num_turns: int


class TurnOut(Schema):
    id: str
    session: str
    index: int
    at: datetime
    checkpoint: str | None = Field(description="<policy>@<version>; null for another model's answer")
    model: str | None
    user: str | None
    surface: str | None
    language: str | None
    source: str
    outcome: str | None = Field(description="accept, reject, silence or unknown; null while it is not settled")
    settled_at: datetime | None
    input_tokens: int | None
    output_tokens: int | None
    latency_ms: float | None
    finish_reason: str | None
    error: str | None
    is_excluded: bool = Field(description="a reviewer took it out of training")


class SignalOut(Schema):
    id: str = Field(alias="signal_id")
    kind: str
    value: float | None
    text: str | None
    at: datetime
    user: str | None
    supersedes: str | None


class LabelOut(Schema):
    outcome: str
    value: float
    reason: str


class TurnDetail(TurnOut):
    messages: list[dict[str, Any]] | None
    prompt: str | None
    completion: str | None = Field(description="null when the text is no longer kept")
    tool_calls: list[Any]
    metadata: dict[str, Any]
    label: LabelOut | None
    signals: list[SignalOut]


class SessionDetail(SessionOut):
    turns: list[TurnOut] = Field(description="the first 500, in order")


class FlagOut(Schema):
    id: int
    turn: str
    rule: str
    reason: str
    state: str
    resolution: str | None
    reviewer: str | None
    created_at: datetime
    resolved_at: datetime | None


class ShareOut(Schema):
    key: str | None = Field(description="null: turns without a user or surface")
    turns: int = Field(description="settled turns shown")
    accepted: int
    share: float
    low: float
    high: float
    interval: str = Field(description="wilson, or wilson_clustered where a user has several turns; 95 %")


class SharesOut(Schema):
    groups: list[ShareOut]


class AlarmOut(Schema):
    id: int
    rule: str
    subject: str
    severity: str
    state: str
    summary: str
    opened_at: datetime
    closed_at: datetime | None


class SessionsAsked(Asked):
    user: str | None = None


class TurnsAsked(Asked):
    session: str | None = None
    user: str | None = None
    outcome: Literal["accept", "reject", "silence", "unknown"] | None = None
    policy: str | None = None
    version: int | None = None


class FlagsAsked(Asked):
    state: Literal["open", "resolved"] | None = None


class AlarmsAsked(Asked):
    state: Literal["open", "acknowledged", "closed"] | None = None


class SharesAsked(Schema):
    by: Literal["checkpoint", "model", "user", "surface"] = "checkpoint"
    source: Literal["production", "import", "simulated", "eval", "judge", "playground"] | None = None
    since: datetime | None = None
    until: datetime | None = None


@router.get("/sessions", response=Page[SessionOut], auth=READ, summary="List sessions by their last turn")
@in_project
def sessions(request: ApiRequest, asked: Query[SessionsAsked]) -> dict[str, Any]:
    rows = AgentSession.objects.filter(user=asked.user) if asked.user else AgentSession.objects.all()
    return page_of(rows, asked, at="last_at", show=lambda row: row)


@router.get("/sessions/{path:id}", response=SessionDetail, auth=READ, summary="One session with its turns")
@in_project
def session(request: ApiRequest, id: str) -> dict[str, Any]:
    found = AgentSession.objects.filter(session_id=_text(id)).first()
    if found is None:
        raise NotFound("no such session in this project", field="id")
    turns = Turn.objects.filter(session=found).select_related("session").order_by("index", "at")[:500]
    shown = SessionOut.from_orm(found).dict()
    return {"session_id": shown.pop("id"), **shown, "turns": [_turn(one) for one in turns]}


@router.get("/turns", response=Page[TurnOut], auth=READ, summary="List turns, newest first")
@in_project
def turns(request: ApiRequest, asked: Query[TurnsAsked]) -> dict[str, Any]:
    wanted = {
        "session__session_id": asked.session,
        "user": asked.user,
        "outcome": asked.outcome,
        "policy": asked.policy,
        "version": asked.version,
    }
    rows = Turn.objects.select_related("session").filter(**{k: v for k, v in wanted.items() if v is not None})
    return page_of(rows, asked, at="at", show=_turn)


@router.get("/turns/{path:id}", response=TurnDetail, auth=READ, summary="One turn with text, label and signals")
@in_project
def turn(request: ApiRequest, id: str) -> dict[str, Any]:
    found = Turn.objects.filter(turn_id=_text(id)).select_related("session", "label").first()
    if found is None:
        raise NotFound("no such turn in this project", field="id")
    payload = _payload(found)
    return _turn(found) | {
        "messages": payload and payload.messages,
        "prompt": payload and payload.prompt,
        "completion": payload and payload.completion,
        "tool_calls": payload.tool_calls if payload else [],
        "metadata": payload.metadata if payload else {},
        "label": found.label,
        "signals": list(UserSignal.objects.filter(turn=found).order_by("at")[:500]),
    }


@router.get("/flags", response=Page[FlagOut], auth=READ, summary="List flags, newest first")
@in_project
def flags(request: ApiRequest, asked: Query[FlagsAsked]) -> dict[str, Any]:
    rows: QuerySet[Flag] = Flag.objects.select_related("turn")
    rows = rows.filter(state=asked.state) if asked.state else rows
    return page_of(rows, asked, at="created_at", show=_flag)


@router.get(
    "/reports/accept-share", response=SharesOut, auth=READ, summary="Share of settled turns that users accepted"
)
@in_project
def accept_shares(request: ApiRequest, asked: Query[SharesAsked]) -> dict[str, Any]:
    since, until = span_of(asked.since, asked.until)
    groups = accept_share(by=asked.by, source=asked.source, since=since, until=until)
    return {"groups": [asdict(group) for group in groups]}


@router.get("/alarms", response=Page[AlarmOut], auth=READ, summary="List alarms, newest first")
@in_project
def alarms(request: ApiRequest, asked: Query[AlarmsAsked]) -> dict[str, Any]:
    rows = Alarm.objects.filter(state=asked.state) if asked.state else Alarm.objects.all()
    return page_of(rows, asked, at="opened_at", show=lambda row: row)


def _text(id: str) -> str:
    """PostgreSQL takes no NUL; nothing has such an id."""
    if "\0" in id:
        raise NotFound("no such thing in this project", field="id")
    return id


def _payload(turn: Turn) -> TurnPayload | None:
    return TurnPayload.objects.filter(project_id=turn.project_id, turn_id=turn.turn_id, at=turn.at).first()


def _turn(row: Turn) -> dict[str, Any]:
    names = (
        "index", "at", "checkpoint", "model", "user", "surface", "language", "source", "outcome", "settled_at",
        "input_tokens", "output_tokens", "latency_ms", "finish_reason", "error", "is_excluded",
    )  # fmt: skip
    return {"id": row.turn_id, "session": row.session.session_id} | {name: getattr(row, name) for name in names}


def _flag(row: Flag) -> dict[str, Any]:
    names = ("id", "rule", "reason", "state", "resolution", "reviewer", "created_at", "resolved_at")
    return {"turn": row.turn.turn_id} | {name: getattr(row, name) for name in names}
