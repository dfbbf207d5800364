"""Costs: where money went and what it bought, and on a page of its own what quality it pays for."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.access import MemberRequest, member_required
from console.charts.pareto import Priced, pareto
from console.page_tables import PageTable, Rows
from console.reads import cost_quality
from console.reads import costs as reads
from console.reads.gains import gains
from console.timerange import TimeRange
from evals.models import Benchmark
from registry.pricing import Spend
from rl_online.spending.budgets import standings
from rl_online.spending.entries import PURPOSES
from rl_online.spending.ledger import ledger

DEFAULT_RANGE = "30d"


@require_safe
@member_required()
def costs(request: MemberRequest) -> HttpResponse:
    time_range = TimeRange.of(request, DEFAULT_RANGE)
    spent = ledger(time_range.start, time_range.end)
    found = reads.costs(spent)
    return render(
        request,
        "costs/costs.html",
        {
            "time_range": time_range,
            "ledger": spent,
            "costs": found,
            "purposes": found.purposes,
            "gains": gains(spent),
            "standings": standings(timezone.now()),
            "tables": TABLES[:1],
        },
    )


@require_safe
@member_required()
def quality(request: MemberRequest) -> HttpResponse:
    """Cost against quality on one benchmark, and list prices beside."""
    time_range = TimeRange.of(request, DEFAULT_RANGE)
    spent = ledger(time_range.start, time_range.end)
    choices = cost_quality.benchmarks(spent.since, spent.until)
    chosen = _chosen(choices, request.GET.get("benchmark", ""))
    sides = cost_quality.sides(chosen, spent) if chosen else cost_quality.Sides(rated=[], left_out=[])
    rated = sides.rated
    return render(
        request,
        "costs/quality.html",
        {
            "time_range": time_range,
            "benchmarks": choices,
            "benchmark": chosen,
            "figure": _figure(request, rated, reads.serving(), time_range),
            "rated": rated,
            "left_out": sides.left_out,
            "num_older": sides.num_older,
            "max_sides": cost_quality.MAX_SIDES,
            "max_answers": cost_quality.MAX_ANSWERS,
            "undrawn": [one for one in rated if not one.cost_usd or one.quality is None],
            "prices": cost_quality.list_prices(rated, timezone.now()),
            "million": cost_quality.own_millions(spent, rated),
            "tables": TABLES[1:],
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
                n=one.num_problems,
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


def _ask_costs(request: HttpRequest) -> Callable[[], Rows]:
    time_range = TimeRange.of(request, DEFAULT_RANGE)

    def rows() -> Rows:
        found = reads.costs(ledger(time_range.start, time_range.end))
        return [_exported(row) for row in found.rows]

    return rows


def _exported(row: reads.CostRow) -> tuple[Any, ...]:
    spends = [row.spend.get(purpose, Spend()) for purpose in PURPOSES]
    return (
        row.name, row.is_serving, *(value for spend in (*spends, row.total) for value in _spent(spend)),
        row.bought.settled, row.bought.accepted, row.per_accepted_usd, row.accepted_low_usd,
        row.accepted_high_usd, row.bought.scored, row.bought.solved, row.per_solved_usd, row.solved_low_usd,
        row.solved_high_usd,
        row.seconds, row.idle_usd, row.tokens,
    )  # fmt: skip


def _spent(spend: Spend) -> tuple[Any, ...]:
    """The sum over priced calls is no cost where none has a price."""
    is_known = spend.calls > spend.unpriced or not spend.calls
    return spend.cost_usd if is_known else None, spend.calls, spend.unpriced, spend.unpriced_tokens, spend.provided_usd


def _ask_quality(request: HttpRequest) -> Callable[[], Rows]:
    time_range, asked = TimeRange.of(request, DEFAULT_RANGE), request.GET.get("benchmark", "")

    def rows() -> Rows:
        spent = ledger(time_range.start, time_range.end)
        chosen = _chosen(cost_quality.benchmarks(spent.since, spent.until), asked)
        if chosen is None:
            return []
        return [
            (
                str(chosen), one.name, one.quality, *_bounds(one.quality, one.quality_low, one.quality_high),
                one.interval, one.num_problems, one.cost_usd, one.cost_low, one.cost_high, cost_quality.COST_INTERVAL,
                one.num_unpriced, one.median_tokens, one.priced_by, one.is_imported,
            )
            for one in cost_quality.sides(chosen, spent).rated
        ]  # fmt: skip

    return rows


def _bounds(value: float | None, low: float, high: float) -> tuple[float | None, float | None]:
    return (None, None) if value is None else (low, high)


COST_COLUMNS = (
    "who_answered", "is_serving",
    *(
        f"{name}_{what}"
        for name in (*PURPOSES, "total")
        for what in ("usd", "calls", "unpriced_calls", "unpriced_tokens", "provided_usd")
    ),
    "settled_turns", "accepted_turns", "accepted_turn_usd", "accepted_turn_usd_low", "accepted_turn_usd_high",
    "scored_answers", "solved_answers", "solved_problem_usd", "solved_problem_usd_low", "solved_problem_usd_high",
    "device_seconds", "idle_usd", "tokens",
)  # fmt: skip
QUALITY_COLUMNS = (
    "benchmark", "side", "score_mean", "score_low", "score_high", "score_interval", "n_scored",
    "problem_usd", "problem_usd_low", "problem_usd_high", "usd_interval", "n_unpriced",
    "output_tokens_median", "priced_by", "is_imported",
)  # fmt: skip
TABLES = (
    PageTable(
        name="costs",
        title="By checkpoint and model",
        page="costs",
        columns=COST_COLUMNS,
        ask=_ask_costs,
    ),
    PageTable(
        name="cost-quality",
        title="Cost against quality",
        page="cost-quality",
        columns=QUALITY_COLUMNS,
        ask=_ask_quality,
    ),
)
