"""What a run on our own weights cost: its answers' part of the device time in which they were made. Inside a tenant."""

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from django.db.models import Count, Sum
from django.utils import timezone

from evals.models import EvalRun, Score
from feedback.rollups import whole_hours
from registry.price_cards import all_cards, rates_by_card
from rl_online.spending.entries import merged
from rl_online.spending.turns import turns_of_ours

LONGEST = timedelta(days=31)  # of a run; what a longer one cost before is not looked at


@dataclass(frozen=True, kw_only=True, slots=True)
class RunCost:
    seconds: Decimal  # of our own device
    cost_usd: Decimal | None  # None: an hour of own hardware has no price
    num_timed: int  # answers whose latency is known: those the cost is of


def run_cost(run: EvalRun) -> RunCost | None:
    """None where its answers are not our own weights', or were not booked (yet).

    An answer's cost is its latency x what a second of latency of this checkpoint's answers to benchmarks cost in the
    hours of the run, as everywhere else; see rl_online.spending.turns.
    """
    if run.source_key or run.checkpoint is None:
        return None
    until = run.finished_at or timezone.now()
    since, until = whole_hours(max(run.started_at, until - LONGEST), until)
    entries = merged(turns_of_ours(rates_by_card(all_cards()), since, until))
    entry = next((one for one in entries if (one.name, one.purpose) == (run.checkpoint, "proving")), None)
    timed = Score.objects.filter(run=run, scorer=run.scorer).aggregate(
        number=Count("latency_ms"), total_ms=Sum("latency_ms")
    )
    if entry is None or not entry.latency_seconds or not timed["number"]:
        return None
    latency = Decimal(str(timed["total_ms"])) / 1000
    share = min(Decimal(1), latency / entry.latency_seconds)
    usd = entry.usd_per_latency_second
    return RunCost(
        seconds=entry.seconds * share,
        cost_usd=None if usd is None else usd * entry.latency_seconds * share,
        num_timed=timed["number"],
    )
