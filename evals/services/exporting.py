"""A stored run, made here or imported, for those who read other tools' formats. See evals.exporters."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
from django.db.models import Q
from django.utils import timezone

from evals.exporters.exported import Exported, Measured
from evals.importers.record import Claim, Result, Usage
from evals.models import EvalRun, Score
from evals.selectors_runs import by_scorer, find_run
from registry.errors import NotFound
from registry.models import Project
from registry.tenancy import tenant

READ_AT_ONCE = 500
OWN_WRITER = "strop"


def exported(project: Project, run: str) -> Exported:
    """The run of an id. Raises NotFound. Its results are read page by page when they are asked for."""
    try:
        run_id = UUID(run)
    except ValueError:
        raise NotFound(f"there is no run {run[:60]!r}; give the id that its page shows") from None
    with tenant(project.id):
        row = find_run(run_id)
        measured = [
            Measured(
                scorer=one.scorer,
                num_problems=one.num_problems,
                num_unscored=one.num_answers - one.num_scored,
                mean=one.mean,
                stderr=one.stderr,
                is_binary=one.num_right is not None,
            )
            for one in by_scorer(row)
        ]
    benchmark, is_ours = row.benchmark, row.source_key is None
    return Exported(
        id=str(row.id),
        benchmark=benchmark.origin_name or benchmark.name,
        benchmark_version=benchmark.origin_version if benchmark.origin else str(benchmark.version),
        model=row.model or row.checkpoint or "unknown",
        writer=OWN_WRITER if is_ours else row.source.get("format", OWN_WRITER),
        writer_version=row.source.get("writer_version"),
        began_at=row.started_at if is_ours else row.measured_at,
        exported_at=timezone.now(),
        project=project.name,
        measured=measured,
        claims=[msgspec.convert(claim, Claim) for claim in row.claims],
        settings=row.settings or _settings(row),
        state=row.state,
        error=row.error,
        results=_Results(project.id, row),
    )


def _settings(run: EvalRun) -> dict[str, Any]:
    """How a run made here asked."""
    asked = {
        "seed": run.seed, "num_repeats": run.num_repeats, "num_problems": run.num_problems,
        "seconds_per_answer": run.seconds_per_answer,
    }  # fmt: skip
    return {**run.sampling, **(asked if run.asked_by else {})}


class _Results:
    """The results of a run in the order of problems and repeats, read anew each time they are iterated."""

    def __init__(self, project_id: UUID, run: EvalRun) -> None:
        self.project_id, self.run = project_id, run

    def __iter__(self) -> Iterator[Result]:
        after: tuple[Any, ...] = (0, 0, 0)
        while rows := self._page(after):
            yield from (_result(row) for row in rows)
            after = (rows[-1].problem_id, rows[-1].repeat, rows[-1].pk)

    def _page(self, after: tuple[Any, ...]) -> list[Score]:
        problem, repeat, pk = after
        with tenant(self.project_id):
            rows = Score.objects.filter(run=self.run).select_related("problem").defer("raw")
            behind = rows.filter(
                Q(problem__gt=problem)
                | Q(problem=problem, repeat__gt=repeat)
                | Q(problem=problem, repeat=repeat, pk__gt=pk)
            )
            return list(behind.order_by("problem_id", "repeat", "id")[:READ_AT_ONCE])


def _result(row: Score) -> Result:
    problem = row.problem
    assert problem is not None, "a score of a run has a problem"
    return Result(
        problem=problem.problem_id,
        scorer=row.scorer,
        status=row.status,
        repeat=row.repeat,
        score=row.value,
        raw_score=row.raw_score,
        explanation=row.explanation,
        prompt=problem.prompt,
        messages=problem.messages,
        reference=problem.reference,
        output=row.output,
        slices={name: str(value) for name, value in (problem.slices | row.slices).items()},
        usage=_usage(row.usage),
        cost_usd=row.cost_usd if row.cost_usd is None else Decimal(row.cost_usd),
        latency_ms=row.latency_ms,
    )


def _usage(counts: dict[str, Any]) -> Usage | None:
    known = {name: counts[name] for name in Usage.__struct_fields__ if isinstance(counts.get(name), int)}
    return Usage(**known) if known else None
