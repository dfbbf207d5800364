"""The list of gate reports."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from console.facets import Counted, Facet, count_facets
from console.listing import Asked, Column, ExportOf, Found, ListKind, keyset_page
from console.lists.updates import DECISIONS
from console.query import Field, Fields, Kind
from rl_online.models import GateReport

FIELDS = Fields(
    Field("decision", choices=DECISIONS, help="what the gate said"),
    Field("policy", column="checkpoint__policy__name", help="name of the policy"),
    Field("version", column="checkpoint__version", kind=Kind.NUMBER, help="of the candidate"),
    Field("state", column="checkpoint__state", help="of the candidate now"),
    Field("benchmark", column="evidence__benchmark", help="name@version it was proved on"),
    search=lambda text: Q(reasons__icontains=text),
)
COLUMNS = (
    Column(name="report", title="Report"),
    Column(name="checkpoint", title="Candidate"),
    Column(name="decision", title="Decision"),
    Column(name="reason", title="First reason"),
    Column(name="against", title="Against"),
    Column(name="state", title="Candidate now"),
    Column(name="judge", title="Judge, win rate", is_number=True, hint="of the candidate against the serving one"),
    Column(name="at", title="Decided"),
)
EXPORTED = ("report", "checkpoint", "decision", "reasons", "evidence", "judge", "decided_at")
FACETS = (
    Counted(name="decision", title="Decision", columns=("decision",)),
    Counted(name="policy", title="Policy", columns=("checkpoint__policy__name",)),
    Counted(name="state", title="Candidate now", columns=("checkpoint__state",)),
)


def matching(asked: Asked) -> QuerySet[GateReport]:
    return GateReport.objects.filter(asked.time_range.within("created_at"), asked.query.condition())


def find(asked: Asked) -> Found:
    return keyset_page(exported(asked), asked, at="created_at")


def facets(asked: Asked) -> list[Facet]:
    return count_facets(asked, matching, FACETS, at="created_at")


def newest_report() -> datetime | None:
    return GateReport.objects.order_by("-created_at").values_list("created_at", flat=True).first()


def exported(asked: Asked) -> QuerySet[GateReport]:
    return matching(asked).select_related("checkpoint__policy")


def export_rows(reports: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [
        (one.pk, str(one.checkpoint), one.decision, one.reasons, one.evidence, one.judge, one.created_at)
        for one in reports
    ]


GATES = ListKind(
    name="gates",
    noun="report",
    title="Gate reports",
    fields=FIELDS,
    columns=COLUMNS,
    find=find,
    newest=newest_report,
    facets=facets,
    export=ExportOf(columns=EXPORTED, rows=exported, values=export_rows, at="created_at"),
    rows_template="gates/_rows.html",
    empty_template="gates/_empty.html",
    default_range="90d",
    example='decision:hold policy:editor "inferiority is not ruled out"',
)
