"""The audit trail: who did what to what, why, and how it was before."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from console.facets import Counted, Facet, count_facets
from console.listing import Asked, Column, ExportOf, Found, ListKind, keyset_page
from console.query import Field, Fields
from registry.models import AuditEvent

FIELDS = Fields(
    Field("actor", help="a user name, key:<prefix>, cli:<name>, or strop for the loop itself"),
    Field("verb", help="what was done, e.g. promote"),
    Field("kind", column="object_kind", help="what it was done to, e.g. checkpoint"),
    Field("object", column="object_id", help="which one, e.g. editor@3"),
    search=lambda text: Q(reason__icontains=text) | Q(object_id__icontains=text),
)
COLUMNS = (
    Column(name="at", title="When"),
    Column(name="actor", title="Who"),
    Column(name="verb", title="Did"),
    Column(name="object", title="To"),
    Column(name="before", title="Before"),
    Column(name="after", title="After"),
    Column(name="reason", title="Why"),
)
EXPORTED = ("at", "actor", "verb", "kind", "object", "before", "after", "reason")
FACETS = (
    Counted(name="verb", title="Did", columns=("verb",)),
    Counted(name="kind", title="To a", columns=("object_kind",)),
    Counted(name="actor", title="Who", columns=("actor",)),
)


def matching(asked: Asked) -> QuerySet[AuditEvent]:
    return AuditEvent.objects.filter(asked.time_range.within("at"), asked.query.condition())


def find(asked: Asked) -> Found:
    return keyset_page(matching(asked), asked)


def facets(asked: Asked) -> list[Facet]:
    return count_facets(asked, matching, FACETS, at="at")


def newest_event() -> datetime | None:
    return AuditEvent.objects.order_by("-at").values_list("at", flat=True).first()


def export_rows(events: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [
        (one.at, one.actor, one.verb, one.object_kind, one.object_id, one.before, one.after, one.reason)
        for one in events
    ]


AUDIT = ListKind(
    name="audit",
    noun="event",
    title="Audit trail",
    fields=FIELDS,
    columns=COLUMNS,
    find=find,
    newest=newest_event,
    facets=facets,
    export=ExportOf(columns=EXPORTED, rows=matching, values=export_rows),
    rows_template="settings/_audit_rows.html",
    empty_template="settings/_audit_empty.html",
    default_range="30d",
    example="verb:promote -actor:strop kind:checkpoint",
)
