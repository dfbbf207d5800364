"""Streams of the pages that move: the overview and an update."""

from collections.abc import Callable, Hashable
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.contrib.auth.views import redirect_to_login
from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.loader import render_to_string
from django.utils import timezone

from console.access import member_of
from console.live import Snapshot, follow
from console.reads import overview as overview_reads
from console.reads import policies
from console.timerange import TimeRange
from console.views import overview as overview_page
from console.views import updates as updates_page
from registry.errors import NotFound
from registry.models import Member, Project
from registry.selectors import memberships
from registry.tenancy import tenant
from rl_online.selectors import update_detail

UPDATE_POLL_S = 1.0
OVERVIEW_POLL_S = 3.0  # it reads far more rows, and minutes are its unit

Read = Callable[[], Snapshot]


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
        with timezone.override(time_range.tzinfo):
            parts = {
                f"overview-{part}": render_to_string(f"overview/_{part}.html", context)
                for part in overview_page.LIVE_PARTS
            }
        return Snapshot(parts=parts, figures={name.removesuffix("_figure"): figure for name, figure in figures.items()})

    key = ("overview", name, *sorted(asked.query.items()))
    return await _stream(request, project, key, read, poll_s=OVERVIEW_POLL_S)


async def update(request: HttpRequest, project: str, update: UUID) -> HttpResponse:
    def read(project: Project) -> Snapshot:
        detail = update_detail(update)
        context: dict[str, Any] = updates_page.progress(detail) | {"project": project}
        return Snapshot(
            parts={"update-progress": render_to_string("updates/_progress.html", context)},
            figures={name: figure["data"] for name, figure in updates_page.curve_figures(detail).items()},
            is_over=not context["is_live"],
        )

    return await _stream(request, project, ("update", update), read, poll_s=UPDATE_POLL_S)


async def _stream(
    request: HttpRequest, slug: str, key: tuple[Hashable, ...], read: Callable[[Project], Snapshot], *, poll_s: float
) -> HttpResponse:
    """As `member_required`, for a view that outlives its request: the tenant is opened anew for every reading."""
    if request.method != "GET":
        return HttpResponseNotAllowed(["GET"])
    user = await request.auser()
    if not user.is_authenticated:
        return redirect_to_login(request.get_full_path())
    member = member_of(await sync_to_async(_memberships)(user), slug)

    def read_as_tenant() -> Snapshot:
        with tenant(member.project_id):
            return read(member.project)

    try:
        await sync_to_async(_check)(read_as_tenant)
    except NotFound as error:
        raise Http404(error.message) from error
    return follow((member.project_id, *key), read_as_tenant, poll_s=poll_s)


def _memberships(user: Any) -> list[Member]:
    return memberships(user)


def _check(read: Read) -> None:
    """One reading before the stream opens, so that what is not there answers 404. Gives its connection back."""
    try:
        read()
    finally:
        if not connection.in_atomic_block:
            connection.close()
