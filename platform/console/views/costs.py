"""Costs: where money went, what it bought, and what quality it pays for."""

from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import NoReverseMatch, reverse
from django.views.decorators.http import require_safe

from console.access import MemberRequest, member_required
from console.charts.pareto import Priced, pareto
from console.reads import cost_quality
from console.reads import costs as reads
from console.reads.spending.entries import PURPOSES
from console.reads.spending.ledger import ledger
from console.timerange import TimeRange
from evals.models import Benchmark

DEFAULT_RANGE = "30d"


@require_safe
@member_required()
def costs(request: MemberRequest) -> HttpResponse:
    time_range = TimeRange.of(request, DEFAULT_RANGE)
    spent = ledger(time_range.start, time_range.end)
    found = reads.costs(spent)
    choices = cost_quality.benchmarks(spent.since, spent.until)
    chosen = _chosen(choices, request.GET.get("benchmark", ""))
    rated = cost_quality.rated(chosen, spent) if chosen else []
    serving = {row.name for row in found.rows if row.is_serving}
    return render(
        request,
        "costs/costs.html",
        {
            "time_range": time_range,
            "ledger": spent,
            "costs": found,
            "purposes": PURPOSES,
            "benchmarks": choices,
            "benchmark": chosen,
            "figure": _figure(request, rated, serving, time_range),
            "rated": rated,
            "undrawn": [one for one in rated if not one.cost_usd or one.quality is None],
        },
    )


def _chosen(choices: list[Benchmark], asked: str) -> Benchmark | None:
    return next((one for one in choices if str(one) == asked), choices[0] if choices else None)


def _figure(
    request: MemberRequest, rated: list[cost_quality.Rated], serving: set[str], time_range: TimeRange
) -> dict[str, Any] | None:
    return pareto(
        [
            Priced(
                name=one.name,
                version=one.version,
                cost=one.cost_usd,
                cost_low=one.cost_low,
                cost_high=one.cost_high,
                quality=one.quality,
                quality_low=one.quality_low,
                quality_high=one.quality_high,
                n=one.num_scored,
                interval=one.interval,
                cost_interval=cost_quality.COST_INTERVAL,
                url=_sessions(request, one, time_range),
                is_serving=one.name in serving,
            )
            for one in rated
            if one.cost_usd and one.quality is not None
        ],
        cost_title="mean cost of a problem, USD",
        quality_title="mean score, %",
    )


def _sessions(request: MemberRequest, one: cost_quality.Rated, time_range: TimeRange) -> str:
    """The turns that were paid for: those that answered benchmarks."""
    try:
        turns = reverse("console:turns", args=[request.member.project.slug])
    except NoReverseMatch:
        return ""
    name = "model" if one.version is None else "checkpoint"
    return f"{turns}?{urlencode({'q': f'{name}:{one.name} source:eval'} | time_range.query)}"
