"""Streams of the pages that move: the overview, an update and a benchmark run."""

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from console.live import Snapshot
from console.reads import benchmarks, policies
from console.reads import overview as overview_reads
from console.streaming import stream
from console.timerange import TimeRange
from console.views import overview as overview_page
from console.views import updates as updates_page
from evals.selectors_runs import find_run
from registry.models import Project
from rl_online.selectors import update_detail

UPDATE_POLL_S = 1.0
RUN_POLL_S = 1.0
OVERVIEW_POLL_S = 3.0  # it reads far more rows, and minutes are its unit


async def overview(request: HttpRequest, project: str) -> HttpResponse:
    name = request.GET.get("policy")
    asked = TimeRange.of(request, default=overview_reads.DEFAULT_RANGE)

    def read(project: Project) -> Snapshot:
        policy = policies.chosen(policies.all_policies(), name)
        if policy is None:
            return Snapshot(parts={}, figures={}, is_over=True)
        time_range = TimeRange.of(request, default=overview_reads.DEFAULT_RANGE)  # a moving range has moved
        context = overview_page.gather(project, policy, time_range) | {"project": project}
        figures = overview_page.figures(project, context)
        parts = {
            f"overview-{part}": render_to_string(f"overview/_{part}.html", context) for part in overview_page.LIVE_PARTS
        }
        return Snapshot(parts=parts, figures={name.removesuffix("_figure"): figure for name, figure in figures.items()})

    key = ("overview", name, *sorted(asked.query.items()))
    return await stream(request, project, key, read, poll_s=OVERVIEW_POLL_S)


async def update(request: HttpRequest, project: str, update: UUID) -> HttpResponse:
    def read(project: Project) -> Snapshot:
        detail = update_detail(update)
        context: dict[str, Any] = updates_page.progress(detail) | {"project": project}
        return Snapshot(
            parts={"update-progress": render_to_string("updates/_progress.html", context)},
            figures={name: figure["data"] for name, figure in updates_page.curve_figures(detail).items()},
            is_over=not context["is_live"],
        )

    return await stream(request, project, ("update", update), read, poll_s=UPDATE_POLL_S)


async def eval_run(request: HttpRequest, project: str, run: UUID) -> HttpResponse:
    def read(project: Project) -> Snapshot:
        progress = benchmarks.progress_of(find_run(run))
        context: dict[str, Any] = {"progress": progress, "project": project}
        part = render_to_string("evals/_progress.html", context)
        return Snapshot(parts={"run-progress": part}, figures={}, is_over=not progress.is_live)

    return await stream(request, project, ("eval-run", run), read, poll_s=RUN_POLL_S)
