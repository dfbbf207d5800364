"""The list of comparisons: two answers and who won, by judges, people or tests, made here or brought in."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from console.facets import Counted, Facet, count_facets
from console.listing import Asked, Column, ExportOf, Found, ListKind, keyset_page
from console.lists.benchmark_fields import benchmark_field, made_field
from console.query import Field, Fields, Kind, Term
from evals.models import Comparison, VerdictKind


def _side(term: Term) -> Q:
    """Either of the two; said twice it names both."""
    if term.is_presence:
        return Q(left__isnull=False)
    found = Q(left__in=term.values) | Q(right__in=term.values)
    for prefix in term.prefixes:
        found |= Q(left__startswith=prefix) | Q(right__startswith=prefix)
    return found


def _set(term: Term) -> Q:
    """Of one imported file."""
    if term.is_presence:
        return Q(set__isnull=False)
    try:
        return Q(set_id__in=[UUID(value) for value in term.values])
    except ValueError:
        return Q(pk__in=[])  # no file has such an id


FIELDS = Fields(
    Field("side", build=_side, help="left or right; said twice it names both"),
    Field("left"),
    Field("right"),
    Field("verdict", choices=tuple(VerdictKind.values)),
    Field("by", choices=("judge", "person", "tests"), help="who compared"),
    Field("judge", column="judge__name", help="a judge of this project"),
    Field("judge_version", column="judge_id", kind=Kind.NUMBER, help="the number in its page's address"),
    Field("rater", help="the judge or person as an imported file names them"),
    made_field("set", help="compared here, or brought in"),
    Field("file", build=_set, help="the id of an imported file"),
    benchmark_field("problem__benchmark"),
    Field("problem", column="problem__problem_id"),
)
COLUMNS = (
    Column(name="problem", title="Problem"),
    Column(name="left", title="Left"),
    Column(name="right", title="Right"),
    Column(name="verdict", title="Verdict"),
    Column(name="by", title="By"),
    Column(name="preference", title="P(right wins)", is_number=True, hint="of a judge that says more than who won"),
    Column(name="benchmark", title="Benchmark"),
    Column(name="made", title="From", is_default=False, hint="made here, or the format of the file it came in"),
    Column(name="judged", title="Compared", is_default=False, hint="as the imported file says"),
    Column(name="at", title="Came in"),
)
EXPORTED = (
    "comparison", "benchmark", "problem", "left", "right", "verdict", "preference", "by", "judge", "judge_version",
    "rater", "repeat", "file", "judged_at", "at",
)  # fmt: skip
FACETS = (
    Counted(name="verdict", title="Verdict", columns=("verdict",)),
    Counted(name="by", title="By", columns=("by",)),
    Counted(name="rater", title="Rater", columns=("rater",), value=lambda rater: rater or None),
    Counted(name="left", title="Left", columns=("left",)),
    Counted(name="right", title="Right", columns=("right",)),
)


def matching(asked: Asked) -> QuerySet[Comparison]:
    rows = Comparison.objects.select_related("problem__benchmark", "judge", "set")
    heavy = ("left_text", "right_text", "raw", "set__claims", "set__notes", "problem__messages", "problem__prompt")
    return rows.defer(*heavy).filter(asked.time_range.within("created_at"), asked.query.condition())


def find(asked: Asked) -> Found:
    return keyset_page(matching(asked), asked, at="created_at")


def facets(asked: Asked) -> list[Facet]:
    return count_facets(asked, matching, FACETS, at="created_at")


def newest() -> datetime | None:
    return Comparison.objects.order_by("-created_at").values_list("created_at", flat=True).first()


def export_rows(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [
        (
            row.pk,
            *((str(row.problem.benchmark), row.problem.problem_id) if row.problem else (None, None)),
            *(row.left, row.right, row.verdict, row.preference, row.by),
            *((row.judge.name, row.judge_id) if row.judge else (None, None)),
            *(row.rater or None, row.repeat, str(row.set_id) if row.set_id else None, row.judged_at, row.created_at),
        )
        for row in rows
    ]


COMPARISONS = ListKind(
    name="comparisons",
    noun="comparison",
    title="Comparisons",
    fields=FIELDS,
    columns=COLUMNS,
    find=find,
    newest=newest,
    facets=facets,
    export=ExportOf(columns=EXPORTED, rows=matching, values=export_rows, at="created_at"),
    rows_template="comparisons/_rows.html",
    empty_template="comparisons/_empty.html",
    default_range="90d",
    example="side:editor@2 side:editor@1 verdict:tie,both_bad",
)
