"""The list of alarms, those that stand and those that are over."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from console.facets import Counted, Facet, count_facets
from console.listing import Asked, Column, ExportOf, Found, ListKind, keyset_page
from console.query import Field, Fields
from rl_online.alarms import Rule
from rl_online.models import Alarm, AlarmState

SEVERITIES = ("critical", "warning", "info")
FIELDS = Fields(
    Field("state", choices=tuple(AlarmState.values), help="open, acknowledged or closed"),
    Field("rule", choices=tuple(Rule), help="what it is about"),
    Field("severity", choices=SEVERITIES, help="how grave"),
    Field("policy", column="subject", help="name of the policy it is about"),
    Field("by", column="closed_by", help="who closed it"),
    search=lambda text: Q(summary__icontains=text) | Q(note__icontains=text),
)
COLUMNS = (
    Column(name="opened", title="Opened"),
    Column(name="alarm", title="Alarm"),
    Column(name="severity", title="Severity"),
    Column(name="policy", title="Policy"),
    Column(name="summary", title="What was found"),
    Column(name="state", title="State"),
    Column(name="closed", title="Closed"),
    Column(name="note", title="Note"),
)
EXPORTED = (
    "alarm", "rule", "severity", "subject", "state", "summary", "evidence", "opened_at", "last_found_at",
    "acknowledged_at", "acknowledged_by", "closed_at", "closed_by", "note",
)  # fmt: skip
FACETS = (
    Counted(name="state", title="State", columns=("state",)),
    Counted(name="rule", title="Alarm", columns=("rule",)),
    Counted(name="severity", title="Severity", columns=("severity",)),
    Counted(name="policy", title="Policy", columns=("subject",), value=lambda subject: subject or None),
)


def matching(asked: Asked) -> QuerySet[Alarm]:
    return Alarm.objects.filter(asked.time_range.within("opened_at"), asked.query.condition())


def find(asked: Asked) -> Found:
    return keyset_page(matching(asked), asked, at="opened_at")


def facets(asked: Asked) -> list[Facet]:
    return count_facets(asked, matching, FACETS, at="opened_at")


def newest_alarm() -> datetime | None:
    return Alarm.objects.order_by("-opened_at").values_list("opened_at", flat=True).first()


def export_rows(alarms: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [
        (
            one.pk, one.rule, one.severity, one.subject, one.state, one.summary, one.evidence, one.opened_at,
            one.raised_at, one.acknowledged_at, one.acknowledged_by, one.closed_at, one.closed_by, one.note,
        )
        for one in alarms
    ]  # fmt: skip


ALARMS = ListKind(
    name="alerts",
    noun="alarm",
    title="Alerts",
    fields=FIELDS,
    columns=COLUMNS,
    find=find,
    newest=newest_alarm,
    facets=facets,
    export=ExportOf(columns=EXPORTED, rows=matching, values=export_rows, at="opened_at"),
    rows_template="alerts/_rows.html",
    empty_template="alerts/_empty.html",
    default_range="30d",
    example='state:closed rule:share_drop policy:editor "apart"',
)
