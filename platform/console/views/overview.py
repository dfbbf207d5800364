"""The first page: is the loop healthy?"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console import plots, snippets
from console.access import MemberRequest, member_required
from console.reads import next_update, policies
from console.reads import overview as reads
from console.reads.cost_today import spent_today
from console.reads.moves import Move, marks, moves
from console.timerange import TimeRange
from feedback.hourly import Share, Span
from feedback.selectors import MANY, num_orphans
from registry.models import Policy, Project
from rl_online.selectors import loop_seconds, stage_medians
from rl_online.services.drift import drifts

LIVE_PARTS = ("alarms", "keys", "loop", "funnel", "ingestion", "stages", "conduct")  # the stream renders these anew
SETTLED = "source:production shown:yes -outcome:unsettled"  # the turns an accept share is made of


@require_safe
@member_required()
def home(request: MemberRequest) -> HttpResponse:
    return redirect("console:overview", request.member.project.slug)


@require_safe
@member_required()
def overview(request: MemberRequest) -> HttpResponse:
    time_range = TimeRange.of(request, default=reads.DEFAULT_RANGE)
    known = policies.all_policies()
    policy = policies.chosen(known, request.GET.get("policy"))
    if policy is None:
        return render(request, "overview/empty.html", {"snippets": snippets.first_signal(None)})
    project = request.member.project
    context = gather(project, policy, time_range)
    context |= figures(project, context)
    frame = {"policies": known, "policy": policy}
    has_turns = bool(context["shares"] or context["received"])
    return render(
        request,
        "overview/overview.html",
        frame | context | {"snippets": None if has_turns else snippets.first_signal(policy.name)},
    )


def gather(project: Project, policy: Policy, time_range: TimeRange) -> dict[str, Any]:
    """What the page prints, also called by its live stream."""
    now = timezone.now()
    standing = policies.standing(policy)
    serving = standing.serving
    whole = Span.in_hours(time_range.start, time_range.end)
    span = reads.span_of(time_range)
    accepted = reads.accept_shares_over(
        reads.shares_span(time_range), policy, serving=serving.version if serving else None
    )
    shares = accepted.whole
    serving_share = shares.get(serving.version) if serving else None
    running = reads.running_update(policy)
    outcomes = reads.outcomes(whole)
    received = sum(n for outcome, n in outcomes.items() if not outcome.startswith(reads.REQUEST))
    rounds = reads.rounds(policy)
    signals, turns = (reverse(f"console:{name}", args=[project.slug]) for name in ("signals", "turns"))
    return {
        "policy": policy,
        "time_range": time_range,
        "cost": spent_today(time_range.local(now)),
        "signal_rows": _rows(signals, "", span.start, span.end),
        "serving_rows": _rows(turns, f"checkpoint:{serving} {SETTLED}", span.start, span.end),
        "standing": standing,
        "shares": shares,
        "shares_over_time": accepted.over_time,
        "serving_share": serving_share,
        "serving_bounds": serving_share.bounds if serving_share else None,
        "serving_turns": serving_share.turns if serving_share else 0,
        "running": running,
        "next": next_update.look(policy, standing, running, now=now),
        "last_round": rounds[0] if rounds else None,
        "last_round_s": loop_seconds(rounds[0], now=now) if rounds else None,
        "stages": stage_medians(rounds),
        "rounds": rounds,
        "num_rounds": len(rounds),
        "funnel": reads.funnel(whole, policy, received=received),
        "outcomes": outcomes,
        "received": received,
        "num_orphans": num_orphans(at_most=MANY),
        "many": MANY,
        "rates": reads.signal_rates(span),
        "alarms": reads.standing_alarms(),
        "conduct": drifts(standing.deployment, now=now) if standing.deployment else [],
    }


def figures(project: Project, context: Mapping[str, Any]) -> dict[str, dict[str, Any] | None]:
    """Of what `gather` found."""
    policy, time_range, standing = context["policy"], context["time_range"], context["standing"]
    span, wide = reads.span_of(time_range), reads.shares_span(time_range)
    serving = standing.serving.version if standing.serving else None
    rounds = context["rounds"]
    moved = moves(time_range.start, time_range.end, policy=policy)
    names = [f"{policy.name}@{run.version}" for run in rounds]
    return {
        "rates_figure": _rates(project, context["rates"], span, time_range, moved),
        "over_time_figure": _over_time(
            project, policy, context["shares_over_time"], wide, time_range, moved, serving=serving
        ),
        "shares_figure": _shares(policy, context["shares"], serving=serving),
        "rounds_figure": plots.stages(names, [run.timings for run in rounds]),
    }


def _rates(
    project: Project, rates: reads.SignalRates, span: Span, time_range: TimeRange, moved: Sequence[Move]
) -> dict[str, Any] | None:
    where = reverse("console:signals", args=[project.slug])
    queries = {kind: "" if kind == "other" else f"kind:{kind}" for kind in rates.counts}
    return plots.rates(
        [time_range.local(at) for at in rates.times],
        rates.counts,
        bucket_minutes=rates.bucket_minutes,
        marks=marks(moved, rates.times, time_range.local),
        links={kind: [_bucket(where, query, at, span) for at in rates.times] for kind, query in queries.items()},
    )


def _over_time(
    project: Project,
    policy: Policy,
    lines: Mapping[int, Sequence[Share]],
    span: Span,
    time_range: TimeRange,
    moved: Sequence[Move],
    *,
    serving: int | None,
) -> dict[str, Any] | None:
    where = reverse("console:turns", args=[project.slug])
    return plots.shares_over_time(
        [
            plots.Line(
                name=f"{policy.name}@{version}",
                version=version,
                is_serving=version == serving,
                points=[_point(share, where, span, time_range) for share in points],
            )
            for version, points in lines.items()
        ],
        [time_range.local(at) for at in span.starts],
        title="accept share, %",
        marks=marks(moved, span.starts, time_range.local),
    )


def _point(share: Share, where: str, span: Span, time_range: TimeRange) -> plots.Point:
    bounds = share.bounds
    return plots.Point(
        at=time_range.local(share.at),
        value=share.value,
        low=bounds.low,
        high=bounds.high,
        n=share.turns,
        interval=bounds.interval,
        url=_bucket(where, f"checkpoint:{share.origin} {SETTLED}", share.at, span),
    )


def _shares(policy: Policy, shares: dict[int, Share], *, serving: int | None) -> dict[str, Any] | None:
    return plots.shares(
        [
            plots.Estimate(
                name=f"{policy.name}@{version}",
                version=version,
                value=share.value,
                low=share.bounds.low,
                high=share.bounds.high,
                n=share.turns,
                interval=share.bounds.interval,
                is_serving=version == serving,
            )
            for version, share in sorted(shares.items())[-reads.NUM_BARS :]
        ],
        title="accept share, %",
    )


def _bucket(where: str, query: str, at: datetime, span: Span) -> str:
    """The list of what one bucket was counted from; its edges are those of the span."""
    return _rows(where, query, max(at, span.start), min(at + span.bucket, span.end))


def _rows(where: str, query: str, start: datetime, end: datetime) -> str:
    return f"{where}?{urlencode({'q': query, 'from': start.isoformat(), 'to': end.isoformat()})}"
