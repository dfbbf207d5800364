"""The first page: is the loop healthy?"""

from typing import Any

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_safe

from console import charts, snippets
from console.access import MemberRequest, member_required
from console.reads import overview as reads
from console.reads import policies
from feedback.selectors import ingestion_outcomes, num_orphans
from registry.models import Policy
from rl_online.selectors import loop_seconds
from rl_online.services.updates import preview_update


@require_safe
@member_required()
def home(request: MemberRequest) -> HttpResponse:
    return redirect("console:overview", request.member.project.slug)


@require_safe
@member_required()
def overview(request: MemberRequest) -> HttpResponse:
    preset = request.GET.get("range", reads.DEFAULT_RANGE)
    preset = preset if preset in reads.RANGES else reads.DEFAULT_RANGE
    known = policies.all_policies()
    policy = policies.chosen(known, request.GET.get("policy"))
    if policy is None:
        return render(request, "overview/empty.html", {"snippets": snippets.first_signal(None)})
    context = gather(policy, preset) | figures(policy, preset)
    frame = {"policies": known, "policy": policy, "preset": preset, "presets": reads.RANGES}
    has_turns = bool(context["shares"] or context["received"])
    return render(
        request,
        "overview/overview.html",
        frame | context | {"snippets": None if has_turns else snippets.first_signal(policy.name)},
    )


def gather(policy: Policy, preset: str) -> dict[str, Any]:
    """What the page prints, also called by its live stream."""
    now = timezone.now()
    since = now - reads.RANGES[preset][0]
    standing = policies.standing(policy)
    shares = reads.accept_shares(policy)
    outcomes = ingestion_outcomes(since=since.replace(minute=0, second=0, microsecond=0))
    rounds = reads.rounds(policy, last=1)
    serving = standing.serving
    upcoming = preview_update(policy, kind="rl") if standing.plan and serving else None
    return {
        "standing": standing,
        "shares": shares,
        "serving_share": shares.get(serving.version) if serving else None,
        "running": reads.running_update(policy),
        "next": upcoming,
        "last_round": rounds[0] if rounds else None,
        "last_round_s": loop_seconds(rounds[0], now=now) if rounds else None,
        "outcomes": outcomes,
        "received": sum(outcomes.values()),
        "num_orphans": num_orphans(),
        "num_signals": reads.signal_rates(preset, now).total,
        "preset": preset,
    }


def figures(policy: Policy, preset: str) -> dict[str, dict[str, Any] | None]:
    now = timezone.now()
    rates = reads.signal_rates(preset, now)
    serving = policies.standing(policy).serving
    rounds = reads.rounds(policy)
    return {
        "rates_figure": charts.rates(
            rates.times,
            rates.counts,
            bucket_minutes=rates.bucket_minutes,
            marks=[
                charts.Mark(at=move.at, text=str((move.after or {}).get("serving", move.verb)))
                for move in reads.moves(now - reads.RANGES[preset][0])
            ],
        ),
        "shares_figure": charts.shares(
            [
                charts.Estimate(
                    name=f"{policy.name}@{version}",
                    version=version,
                    value=share.share,
                    low=share.low,
                    high=share.high,
                    n=share.turns,
                    interval=share.interval,
                    is_serving=bool(serving and serving.version == version),
                )
                for version, share in reads.accept_shares(policy).items()
            ],
            title="accept share, %",
        ),
        "rounds_figure": charts.stages([f"{policy.name}@{run.version}" for run in rounds], [r.timings for r in rounds]),
    }
