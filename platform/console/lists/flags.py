"""The list of flags: what can be asked of it, how its rows are found, counted and exported."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from console.facets import Counted, Facet, count_facets
from console.listing import Asked, Column, ExportOf, Found, ListKind, keyset_page
from console.lists.keys import checkpoint_of, turn_fields
from console.lists.turns import payloads_of
from console.query import Build, Field, Fields, Kind, Term
from console.reads.transcript import last_asked
from feedback.models import Flag, FlagResolution, FlagState, ReviewResponse, TurnPayload
from feedback.services.review import num_needed


def _answered_by() -> Build:
    def build(term: Term) -> Q:
        said = ReviewResponse.objects.filter(flag=OuterRef("pk"), withdrawn_at__isnull=True)
        return Q(Exists(said if term.is_presence else said.filter(reviewer__in=term.values)))

    return build


SHARED = ("outcome", "checkpoint", "model", "policy", "version", "source", "language", "excluded", "reward", "learned")
FIELDS = Fields(
    Field("state", choices=tuple(FlagState.values), help="open: waits for review"),
    Field("rule", help="what raised it, for example tests_disagree, by_hand, sample"),
    Field("resolution", choices=tuple(FlagResolution.values), help="what the reviewers decided"),
    Field("reviewer", build=_answered_by(), help="who answered, has:reviewer for any"),
    Field("raised_by", help="the person who flagged it by hand or drew it as a sample"),
    Field("flag", column="id", kind=Kind.NUMBER, help="its number"),
    Field("turn", column="turn__turn_id", help="id of its turn"),
    Field("session", column="turn__session__session_id", help="id of its session"),
    Field("user", column="turn__user", help="end user, or a beginning with *"),
    *(one for one in turn_fields("turn__") if one.name in SHARED),
)
COLUMNS = (
    Column(name="raised", title="Raised", sort="created_at", is_time=True),
    Column(name="rule", title="Rule"),
    Column(name="completion", title="Model wrote"),
    Column(name="outcome", title="Outcome", hint="of the turn's label"),
    Column(name="checkpoint", title="Answered by"),
    Column(name="state", title="State", hint="open, answered in part, or what was decided"),
    Column(name="reviewer", title="Reviewer"),
    Column(name="resolved", title="Settled", is_default=False),
    Column(name="asked", title="Asked", is_default=False),
    Column(name="reason", title="Why it was raised", is_default=False),
    Column(name="note", title="Note", is_default=False),
    Column(name="user", title="User", is_default=False),
    Column(name="session", title="Session", is_default=False),
)
EXPORTED = (
    "flag", "rule", "reason", "raised_by", "created_at", "state", "resolution", "reward_override", "reviewer", "note",
    "resolved_at", "num_answers", "turn", "session", "user", "checkpoint", "outcome", "completion",
)  # fmt: skip
FACETS = (
    Counted(name="state", title="State", columns=("state",)),
    Counted(name="rule", title="Rule", columns=("rule",)),
    Counted(name="resolution", title="Decided", columns=("resolution",)),
    Counted(name="checkpoint", title="Answered by", columns=("turn__policy", "turn__version", "turn__model"),
            value=checkpoint_of),
    Counted(name="outcome", title="Outcome of the turn", columns=("turn__outcome",)),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class FlagRow:
    flag: Flag
    payload: TurnPayload | None  # None: its text is not kept
    num_answers: int  # that stand
    num_needed: int

    @property
    def asked(self) -> str | None:
        return last_asked(self.payload)


def newest_flag() -> datetime | None:
    return Flag.objects.order_by("-created_at").values_list("created_at", flat=True).first()


def matching(asked: Asked) -> QuerySet[Flag]:
    return Flag.objects.filter(asked.time_range.within("created_at"), asked.query.condition())


def find(asked: Asked) -> Found:
    return keyset_page(exported(asked), asked, at="created_at", wrap=rows_of)


def facets(asked: Asked) -> list[Facet]:
    return count_facets(asked, matching, FACETS, at="created_at")


def exported(asked: Asked) -> QuerySet[Flag]:
    return matching(asked).select_related("turn__session", "turn__label")


def export_rows(flags: Sequence[Flag]) -> list[tuple[Any, ...]]:
    return [
        (
            row.flag.pk, row.flag.rule, row.flag.reason, row.flag.raised_by, row.flag.created_at, row.flag.state,
            row.flag.resolution, row.flag.reward_override, row.flag.reviewer, row.flag.note, row.flag.resolved_at,
            row.num_answers, row.flag.turn.turn_id, row.flag.turn.session.session_id, row.flag.turn.user,
            row.flag.turn.checkpoint or row.flag.turn.model, row.flag.turn.outcome,
            row.payload.completion if row.payload else None,
        )
        for row in rows_of(flags)
    ]  # fmt: skip


def rows_of(flags: Sequence[Flag]) -> list[FlagRow]:
    if not flags:
        return []
    payloads = payloads_of([flag.turn for flag in flags])
    standing = ReviewResponse.objects.filter(flag__in=flags, withdrawn_at__isnull=True).values_list("flag_id")
    answers = dict(standing.annotate(n=Count("id")))
    needed = num_needed(flags[0].project_id)
    return [
        FlagRow(
            flag=flag,
            payload=payloads.get(flag.turn.turn_id),
            num_answers=answers.get(flag.pk, 0),
            num_needed=needed,
        )
        for flag in flags
    ]


FLAGS = ListKind(
    name="flagged",
    noun="flag",
    title="Flagged turns",
    fields=FIELDS,
    columns=COLUMNS,
    find=find,
    newest=newest_flag,
    facets=facets,
    export=ExportOf(columns=EXPORTED, rows=exported, values=export_rows, at="created_at"),
    rows_template="flagged/_rows.html",
    empty_template="flagged/_empty.html",
    bulk_template="flagged/_bulk.html",
    default_range="90d",
    example="state:open rule:tests_disagree checkpoint:editor@3 -outcome:silence",
)
