"""The list of sessions: what can be asked of it and of its turns, how its rows are found, counted and exported."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from console.facets import Counted, Facet, count_facets
from console.listing import Asked, Column, ExportOf, Found, ListKind, keyset_page
from console.lists.keys import checkpoint_of, found_in_text, turn_fields
from console.query import Field, Fields, Kind, Query
from feedback.models import AgentSession, Flag, FlagState, Turn


def _holds(text: str) -> Q:
    turns = Turn.objects.filter(session=OuterRef("pk"))
    return Q(session_id=text) | Q(user=text) | Q(Exists(turns.filter(found_in_text(text))))


FIELDS = Fields(
    Field("session", column="session_id", help="its id, or a beginning with *"),
    Field("user", help="end user, or a beginning with *"),
    Field("surface", help="part of the product"),
    Field("turns", column="num_turns", kind=Kind.NUMBER, help="how many it has"),
    *turn_fields(scope="turn"),
    search=_holds,
)
COLUMNS = (
    Column(name="session", title="Session"),
    Column(name="user", title="User"),
    Column(name="surface", title="Surface"),
    Column(name="turns", title="Turns", is_number=True, sort="num_turns"),
    Column(name="outcomes", title="Outcomes", hint="of its turns"),
    Column(name="checkpoint", title="Answered by"),
    Column(name="flags", title="Open flags", is_number=True),
    Column(name="first", title="First activity", sort="first_at", is_time=True, is_default=False),
    Column(name="last", title="Last activity", sort="last_at", is_time=True),
)
EXPORTED = ("session", "user", "surface", "first_at", "last_at", "num_turns", "outcomes", "answered_by", "open_flags")
FACETS = (
    Counted(name="outcome", title="Has a turn with", columns=("turns__outcome", "turns__settled_at?"),
            value=lambda outcome, settled: outcome if settled else "unsettled"),
    Counted(name="checkpoint", title="Answered by", columns=("turns__policy", "turns__version", "turns__model"),
            value=checkpoint_of),
    Counted(name="source", title="Source", columns=("turns__source",)),
    Counted(name="surface", title="Surface", columns=("surface",)),
)  # fmt: skip


@dataclass(slots=True)
class SessionRow:
    session: AgentSession
    outcomes: dict[str, int] = field(default_factory=dict)  # outcome or "unsettled" -> turns
    origins: list[str] = field(default_factory=list)  # checkpoints and models that answered
    num_flags: int = 0  # open


def newest_session() -> datetime | None:
    return AgentSession.objects.order_by("-last_at").values_list("last_at", flat=True).first()


def matching(asked: Asked) -> QuerySet[AgentSession]:
    """Active in the time range; one turn meets everything asked of turns, and none meets what is asked not to be."""
    sessions = AgentSession.objects.filter(asked.time_range.within("last_at"), asked.query.condition())
    return sessions.filter(_by_turns(asked.query))


def _by_turns(query: Query) -> Q:
    turns = Turn.objects.filter(session=OuterRef("pk"))
    wanted, found = Q(), Q()
    for term in query.about("turn"):
        if term.is_negated:
            found &= ~Q(Exists(turns.filter(term.plain)))
        else:
            wanted &= term.plain
    return found & Q(Exists(turns.filter(wanted))) if wanted else found


def find(asked: Asked) -> Found:
    return keyset_page(matching(asked), asked, at="last_at", wrap=rows_of)


def facets(asked: Asked) -> list[Facet]:
    return count_facets(asked, matching, FACETS, at="last_at", of="id")


def exported(asked: Asked) -> QuerySet[AgentSession]:
    return matching(asked)


def export_rows(sessions: Sequence[AgentSession]) -> list[tuple[Any, ...]]:
    return [
        (
            row.session.session_id, row.session.user, row.session.surface, row.session.first_at, row.session.last_at,
            row.session.num_turns, row.outcomes, row.origins, row.num_flags,
        )
        for row in rows_of(sessions)
    ]  # fmt: skip


def rows_of(sessions: Sequence[AgentSession]) -> list[SessionRow]:
    rows = {session.pk: SessionRow(session) for session in sessions}
    turns = Turn.objects.filter(session_id__in=list(rows))
    by_kind = turns.values_list("session_id", "policy", "version", "model", "outcome").annotate(n=Count("id"))
    for session_id, policy, version, model, outcome, n in by_kind.order_by("session_id", "version"):
        row = rows[session_id]
        row.outcomes[outcome or "unsettled"] = row.outcomes.get(outcome or "unsettled", 0) + n
        origin = checkpoint_of(policy, version, model)
        if origin and origin not in row.origins:
            row.origins.append(origin)
    flags = Flag.objects.filter(turn__session_id__in=list(rows), state=FlagState.OPEN).values_list("turn__session_id")
    for session_id, n in flags.annotate(n=Count("id")):
        rows[session_id].num_flags = n
    return list(rows.values())


SESSIONS = ListKind(
    name="sessions",
    noun="session",
    title="Sessions",
    fields=FIELDS,
    columns=COLUMNS,
    find=find,
    newest=newest_session,
    facets=facets,
    export=ExportOf(columns=EXPORTED, rows=exported, values=export_rows, at="last_at"),
    rows_template="sessions/_rows.html",
    empty_template="sessions/_empty.html",
    bulk_template="partials/flag_ticked.html",
    example='user:u-17 outcome:reject checkpoint:editor@3 turns:>2 "off by one"',
)
