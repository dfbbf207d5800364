"""The gold set: what people say about the turns and sessions that judges mark, beside what the judges say.

Pairs have no labels: what people say about two answers is in the list of comparisons.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from console.facets import Counted, Facet, count_facets
from console.listing import Asked, Column, ExportOf, Found, ListKind, keyset_page
from console.query import Field, Fields, Kind
from evals.judging.gold import is_good
from evals.models import GoldLabel, LiveRating, RatingState, Subject
from evals.rater_agreement import FIRST, SECOND, Agreed, agreed_among

MAX_AGREED = 2_000  # newest labels that people's agreement is counted from


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One label with the current marks of judges on the same turn or session."""

    label: GoldLabel
    ratings: list[LiveRating]

    @property
    def num_agreeing(self) -> int:
        return sum(is_good(one.value) == is_good(self.label.value) for one in self.ratings if one.value is not None)


FIELDS = Fields(
    Field("by", help="who labelled it"),
    Field("subject", choices=tuple(Subject.values)),
    Field("item", column="subject_ref", help="the sender's id of the turn or session"),
    Field("label", column="value", kind=Kind.NUMBER, help="0 is bad, 0.5 half, 1 good"),
)
COLUMNS = (
    Column(name="item", title="Turn or session"),
    Column(name="label", title="Label", is_number=True, hint="0 is bad, 0.5 half, 1 good"),
    Column(name="by", title="By"),
    Column(name="judges", title="Judges", hint="their current marks, brought to 0 to 1"),
    Column(name="agree", title="Agree", is_number=True, hint="judges on the same side of 0.5, of those with a mark"),
    Column(name="at", title="Labelled"),
)
EXPORTED = ("subject", "item", "label", "by", "judges", "agreeing", "at")
FACETS = (
    Counted(name="by", title="By", columns=("by",)),
    Counted(name="subject", title="About", columns=("subject",)),
)


def matching(asked: Asked) -> QuerySet[GoldLabel]:
    return GoldLabel.objects.filter(asked.time_range.within("created_at"), asked.query.condition())


def with_ratings(labels: Sequence[GoldLabel]) -> list[Row]:
    """One query."""
    marked: dict[tuple[str, str], list[LiveRating]] = defaultdict(list)
    current = LiveRating.objects.filter(
        subject_ref__in={one.subject_ref for one in labels}, state=RatingState.SCORED, superseded_at=None
    )
    for rating in current.select_related("judge").order_by("judge_id"):
        marked[rating.subject, rating.subject_ref].append(rating)
    return [Row(label=one, ratings=marked[one.subject, one.subject_ref]) for one in labels]


def find(asked: Asked) -> Found:
    return keyset_page(matching(asked), asked, at="created_at", wrap=with_ratings)


def facets(asked: Asked) -> list[Facet]:
    return count_facets(asked, matching, FACETS, at="created_at")


def newest() -> datetime | None:
    return GoldLabel.objects.order_by("-created_at").values_list("created_at", flat=True).first()


def export_rows(labels: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [
        (
            row.label.subject, row.label.subject_ref, row.label.value, row.label.by,
            {str(one.judge): one.value for one in row.ratings}, row.num_agreeing, row.label.created_at,
        )
        for row in with_ratings(labels)
    ]  # fmt: skip


def agreement_of_people() -> Agreed:
    """Good or not, of every two people who labelled the same, among the newest labels."""
    said: dict[Hashable, list[str]] = defaultdict(list)
    newest_first = GoldLabel.objects.order_by("-created_at").values_list("subject", "subject_ref", "value")
    for subject, ref, value in newest_first[:MAX_AGREED]:
        said[subject, ref].append(FIRST if is_good(value) else SECOND)
    return agreed_among(said)


GOLD = ListKind(
    name="gold",
    noun="label",
    title="Gold set",
    fields=FIELDS,
    columns=COLUMNS,
    find=find,
    newest=newest,
    facets=facets,
    export=ExportOf(columns=EXPORTED, rows=matching, values=export_rows, at="created_at"),
    rows_template="gold/_rows.html",
    empty_template="gold/_empty.html",
    default_range="90d",
    example="by:ada label:0 subject:turn",
)
