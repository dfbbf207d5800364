"""The list of benchmark runs, made here or brought in."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from console.facets import Counted, Facet, count_facets
from console.listing import Asked, Column, ExportOf, Found, ListKind, keyset_page
from console.lists.benchmark_fields import benchmark_field, made_field
from console.query import Field, Fields
from console.reads.evals import light_runs, with_means
from evals.models import EvalRun, EvalState

FIELDS = Fields(
    benchmark_field("benchmark"),
    Field("model", help="an external model's name"),
    Field("checkpoint", help="policy@version"),
    Field("scorer", help="the one that stands for the run"),
    Field("state", choices=tuple(EvalState.values), help="of the run, or of its import"),
    Field("format", help="of the file it came from"),
    made_field("source_key", help="measured here, or brought in"),
    Field("writer_id", column="writer_run_id", help="the id its writer gave it"),
    search=lambda text: Q(model__icontains=text) | Q(checkpoint__icontains=text) | Q(benchmark__name__icontains=text),
)
COLUMNS = (
    Column(name="run", title="Run of"),
    Column(name="benchmark", title="Benchmark"),
    Column(name="scorer", title="Scorer"),
    Column(name="state", title="State"),
    Column(name="n", title="n scored / asked", is_number=True, hint="problems with a score, of those asked"),
    Column(name="mean", title="Mean", is_number=True, hint="over scored problems; repeats of one are averaged first"),
    Column(
        name="interval",
        title="95 % interval",
        is_number=True,
        hint="of the mean, and which formula gave it; clustered by family where that is wider",
    ),
    Column(name="format", title="Source"),
    Column(name="measured", title="Started", hint="as its writer says, or here"),
    Column(name="imported", title="Imported", hint="when it came in", is_default=False),
    Column(name="writer_id", title="Writer's id", is_default=False),
)
EXPORTED = (
    "run", "benchmark", "checkpoint", "model", "scorer", "state", "n", "num_asked", "mean", "low", "high", "interval",
    "clusters", "format", "started_at", "imported_at", "writer_run_id",
)  # fmt: skip
FACETS = (
    Counted(name="benchmark", title="Benchmark", columns=("benchmark__name",)),
    Counted(name="model", title="Model", columns=("model",)),
    Counted(name="checkpoint", title="Checkpoint", columns=("checkpoint",)),
    Counted(name="format", title="Source", columns=("format",)),
    Counted(name="state", title="State", columns=("state",)),
)


def matching(asked: Asked) -> QuerySet[EvalRun]:
    return light_runs().filter(asked.time_range.within("started_at"), asked.query.condition())


def find(asked: Asked) -> Found:
    return keyset_page(matching(asked), asked, at="started_at", wrap=with_means)


def facets(asked: Asked) -> list[Facet]:
    return count_facets(asked, matching, FACETS, at="started_at")


def newest_run() -> datetime | None:
    return EvalRun.objects.order_by("-started_at").values_list("started_at", flat=True).first()


def export_rows(runs: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [
        (
            str(row.run.pk), str(row.run.benchmark), row.run.checkpoint, row.run.model, row.run.scorer, row.run.state,
            row.mean.n, row.mean.num_asked, row.mean.value, row.mean.low, row.mean.high,
            row.mean.interval.value if row.mean.low is not None else None, row.mean.num_clusters, row.run.format,
            row.run.measured_at or (None if row.run.source_key else row.run.started_at),
            row.run.started_at if row.run.source_key else None, row.run.writer_run_id or None,
        )
        for row in with_means(runs)
    ]  # fmt: skip


EVALS = ListKind(
    name="evals",
    noun="run",
    title="Benchmark runs",
    fields=FIELDS,
    columns=COLUMNS,
    find=find,
    newest=newest_run,
    facets=facets,
    export=ExportOf(columns=EXPORTED, rows=matching, values=export_rows, at="started_at"),
    rows_template="evals/_rows.html",
    empty_template="evals/_empty.html",
    default_range="90d",
    example='benchmark:editor-gate@1 state:done made:elsewhere "gpt"',
)
