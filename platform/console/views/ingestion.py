"""Ingestion health: what came of everything sent, what waits, how late things are, and work that was given up."""

from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console import snippets
from console.access import MemberRequest, carry_out, member_required
from console.charts.ingestion import received
from console.reads import ingestion as reads
from console.reads import policies
from console.reads.moves import marks, moves
from console.timerange import TimeRange
from feedback.hourly import Span, counts_by_origin, users
from feedback.rollups import HOUR
from registry.models import Role
from registry.quarantine import replay_job


@require_safe
@member_required()
def ingestion(request: MemberRequest) -> HttpResponse:
    time_range = TimeRange.of(request, default="1d")
    since, until = time_range.start, time_range.end
    outcomes = reads.outcomes(Span.of(since, until, max(HOUR, time_range.bucket)))
    hours = Span.in_hours(since, until)
    by_origin, who = counts_by_origin(hours), users(hours)
    context: dict[str, Any] = {
        "time_range": time_range,
        "outcomes": outcomes,
        "figure": received(
            [time_range.local(start) for start in outcomes.starts],
            outcomes.by_bucket,
            period=outcomes.period,
            marks=marks(moves(since, until), outcomes.starts, time_range.local),
        ),
        "orphans": reads.orphans(),
        "users": who.num,
        "num_turns": sum(counts.turns for counts in by_origin.values()),
        "warnings": reads.warnings(by_origin, who.turns_of_nobody),
        "whole_hours": _whole_hours(time_range),
        "lags": reads.lags(since, until),
        "work": reads.work(),
        "keys": reads.keys(),
    }
    if not outcomes.received and not reads.has_ever_received():
        policy = policies.chosen(policies.all_policies(), None)
        context["snippets"] = snippets.first_signal(policy.name if policy else None)
    return render(request, "ingestion/ingestion.html", context)


def _whole_hours(time_range: TimeRange) -> str:
    """The hours that warnings are counted over, for the address of the turns they were counted from."""
    hours = Span.in_hours(time_range.start, time_range.end)
    return urlencode({"from": hours.start.isoformat(), "to": hours.end.isoformat(), "tz": time_range.zone})


@require_POST
@member_required(Role.ENGINEER)
def replay(request: MemberRequest, job: int) -> HttpResponse:
    def act() -> str:
        replayed = replay_job(job, actor=request.user.get_username(), reason=request.POST.get("reason", "").strip())
        return f"{replayed.kind} #{replayed.pk} gets five new attempts."

    return carry_out(request, act, back=reverse("console:ingestion", args=[request.member.project.slug]))
