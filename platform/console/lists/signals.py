"""The list of signals: what users and the product did, also while the turn it is about has not come."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from console.facets import Counted, Facet, count_facets
from console.listing import Asked, Column, ExportOf, Found, ListKind, keyset_page
from console.lists.keys import checkpoint_of, turn_fields
from console.query import Field, Fields, Kind, Term
from feedback.models import UserSignal

JOINED, WAITING, EXPIRED, OF_SESSION = "joined", "waiting", "expired", "session"
STATES = (JOINED, WAITING, EXPIRED, OF_SESSION)


def state_of(turn_ref: str | None, turn: int | None, expired_at: datetime | None) -> str:
    """Whether a signal found what it is about."""
    if turn_ref is None:
        return OF_SESSION
    if turn is not None:
        return JOINED
    return WAITING if expired_at is None else EXPIRED


IN_STATE = {
    JOINED: Q(turn__isnull=False),
    WAITING: Q(turn__isnull=True, turn_ref__isnull=False, expired_at__isnull=True),
    EXPIRED: Q(turn__isnull=True, expired_at__isnull=False),
    OF_SESSION: Q(session_ref__isnull=False),
}


def _in_state(term: Term) -> Q:
    found = Q()
    for value in term.values:
        found |= IN_STATE[value]
    return found


def _of_session(term: Term) -> Q:
    if term.is_presence:
        return Q(session_ref__isnull=False)
    found = Q(session_ref__in=term.values) | Q(turn__session__session_id__in=term.values)
    for prefix in term.prefixes:
        found |= Q(session_ref__startswith=prefix) | Q(turn__session__session_id__startswith=prefix)
    return found


SHARED = ("outcome", "checkpoint", "model", "policy", "version", "source", "language", "problem")
FIELDS = Fields(
    Field("kind", help="accept, reject, edit, metric:*, ..."),
    Field(
        "state", choices=STATES, build=_in_state, help="joined its turn, waiting for it, expired, or about a session"
    ),
    Field("signal", column="signal_id", help="its id"),
    Field("turn", column="turn_ref", help="id of the turn it names"),
    Field("session", build=_of_session, help="id of its session"),
    Field("user", help="who did it, or a beginning with *"),
    Field("value", kind=Kind.NUMBER, help="share kept, thumbs, rating, metric"),
    Field("text", help="what the user wrote: has:text"),
    Field("supersedes", help="id of the signal it replaces"),
    *(one for one in turn_fields("turn__") if one.name in SHARED),
    search=lambda text: Q(signal_id=text) | Q(turn_ref=text) | Q(text__icontains=text),
)
COLUMNS = (
    Column(name="at", title="When", sort="at", is_time=True),
    Column(name="kind", title="Kind"),
    Column(name="value", title="Value", is_number=True, sort="value"),
    Column(name="text", title="Text"),
    Column(name="state", title="Turn", hint="whether the turn it names is here"),
    Column(name="after", title="After the turn", is_number=True, hint="time from the turn to the signal"),
    Column(name="outcome", title="Outcome of the turn"),
    Column(name="checkpoint", title="Answered by"),
    Column(name="user", title="User"),
    Column(name="session", title="Session", is_default=False),
    Column(name="received", title="Received", sort="received_at", is_time=True, is_default=False),
    Column(name="signal", title="Id", is_default=False),
)
EXPORTED = (
    "signal", "turn", "session", "kind", "value", "text", "at", "received_at", "user", "supersedes", "state",
    "checkpoint", "outcome", "metadata",
)  # fmt: skip
FACETS = (
    Counted(name="kind", title="Kind", columns=("kind",)),
    Counted(name="state", title="Turn", columns=("turn_ref?", "turn_id?", "expired_at?"), value=state_of),
    Counted(name="outcome", title="Outcome of the turn", columns=("turn_id?", "turn__outcome", "turn__settled_at?"),
            value=lambda turn, outcome, settled: None if turn is None else outcome if settled else "unsettled"),
    Counted(name="checkpoint", title="Answered by", columns=("turn__policy", "turn__version", "turn__model"),
            value=checkpoint_of),
    Counted(name="source", title="Source", columns=("turn__source",)),
)  # fmt: skip


def newest_signal() -> datetime | None:
    return UserSignal.objects.order_by("-at").values_list("at", flat=True).first()


def matching(asked: Asked) -> QuerySet[UserSignal]:
    return UserSignal.objects.filter(asked.time_range.within("at"), asked.query.condition())


def find(asked: Asked) -> Found:
    return keyset_page(matching(asked).select_related("turn__session"), asked, wrap=_with_state)


def facets(asked: Asked) -> list[Facet]:
    return count_facets(asked, matching, FACETS, at="at")


def exported(asked: Asked) -> QuerySet[UserSignal]:
    return matching(asked).select_related("turn__session")


def export_rows(signals: Sequence[UserSignal]) -> list[tuple[Any, ...]]:
    return [
        (
            signal.signal_id, signal.turn_ref, signal.session_ref or (signal.turn and signal.turn.session.session_id),
            signal.kind, signal.value, signal.text, signal.at, signal.received_at, signal.user, signal.supersedes,
            state_of(signal.turn_ref, signal.turn_id, signal.expired_at),
            signal.turn and signal.turn.checkpoint, signal.turn and signal.turn.outcome, signal.metadata,
        )
        for signal in signals
    ]  # fmt: skip


def _with_state(signals: Sequence[UserSignal]) -> list[dict[str, Any]]:
    return [
        {"signal": signal, "state": state_of(signal.turn_ref, signal.turn_id, signal.expired_at)} for signal in signals
    ]


SIGNALS = ListKind(
    name="signals",
    noun="signal",
    title="Signals",
    fields=FIELDS,
    columns=COLUMNS,
    find=find,
    newest=newest_signal,
    facets=facets,
    export=ExportOf(columns=EXPORTED, rows=exported, values=export_rows),
    rows_template="signals/_rows.html",
    empty_template="signals/_empty.html",
    example='kind:edit,undo state:waiting value:<0 "wrong"',
)
