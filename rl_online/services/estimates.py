"""What an update would take, from what earlier ones took: samples, tokens, seconds with their spread, cost.

Nothing measured means unknown, never a guess. Inside a tenant; reads only.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import median

from django.db.models import Q
from django.utils import timezone

from feedback.models import Turn
from registry.models import Policy, PriceCard
from registry.price_cards import OWN_HARDWARE, card_at
from registry.pricing import cost_of_device
from rl_online.collecting import Look, num_tokens_of
from rl_online.models import UpdateRun, UpdateState
from rl_online.services.sealing import Pool
from rl_online.services.stages.stage import Ask, Ready, Stage

LAST_RUNS = 5


@dataclass(frozen=True, kw_only=True)
class FromVersion:
    """Samples that one checkpoint answered."""

    checkpoint: str | None  # None: an imported turn of another model
    lag: int | None  # updates behind what serves; None: not on the line
    num_samples: int


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Of the last runs: the middle and the ends."""

    low: float
    middle: float
    high: float
    num_runs: int


@dataclass(frozen=True, kw_only=True)
class Estimate:
    num_samples: int
    sources: list[FromVersion]  # newest first; none of a stage
    num_tokens: int  # prompt and completion, once, of the samples that were counted
    num_uncounted: int  # samples whose tokens nobody counted
    seconds: Spread | None  # of training; None: no run of this loss was measured yet
    cost_usd: tuple[Decimal, Decimal] | None  # low and high; None: no time, or the device's hour has no price


def estimate(pool: Pool) -> Estimate:
    turns = [one.turn for one in pool.candidates]
    counts = [num_tokens_of(turn) for turn in turns]
    known = [count for count in counts if count is not None]
    seconds = None
    if turns and len(known) == len(turns):
        seconds = _seconds(pool.line.policy, pool.kind, sum(known) * pool.config.epochs)
    return Estimate(
        num_samples=len(turns),
        sources=_sources(pool, turns),
        num_tokens=sum(known),
        num_uncounted=len(turns) - len(known),
        seconds=seconds,
        cost_usd=_cost(seconds),
    )


def estimate_stage(stage: Stage, asked: Ask, ready: Ready) -> Estimate:
    seconds = None
    if ready.num_ready and not ready.num_uncounted:
        seconds = _seconds(asked.policy, stage.kind, ready.num_tokens * asked.config.epochs)
    return Estimate(
        num_samples=ready.num_ready,
        sources=[],
        num_tokens=ready.num_tokens,
        num_uncounted=ready.num_uncounted,
        seconds=seconds,
        cost_usd=_cost(seconds),
    )


def seconds_for(rates: Sequence[float], num_tokens: int) -> Spread | None:
    """Seconds for so many tokens at the rates (tokens/s) that were measured; None without any."""
    if not rates:
        return None
    took = sorted(num_tokens / rate for rate in rates)
    return Spread(low=took[0], middle=median(took), high=took[-1], num_runs=len(took))


def _seconds(policy: Policy, kind: str, num_tokens: int) -> Spread | None:
    finished = Q(checkpoint__isnull=False) | Q(state=UpdateState.DONE)
    runs = (
        UpdateRun.objects.filter(finished, policy=policy, batch__kind=kind, timings__train__gt=0)
        .select_related("batch")
        .order_by("-created_at")[:LAST_RUNS]
    )
    rates = [run.batch.num_tokens * run.config.get("epochs", 1) / run.timings["train"] for run in runs]
    return seconds_for([rate for rate in rates if rate > 0], num_tokens)


def _cost(seconds: Spread | None) -> tuple[Decimal, Decimal] | None:
    card = card_at(PriceCard.objects.filter(model=OWN_HARDWARE), OWN_HARDWARE, timezone.now())
    if seconds is None or card is None or card.device_hour_usd is None:
        return None
    low = cost_of_device(seconds.low, card.device_hour_usd)
    high = cost_of_device(seconds.high, card.device_hour_usd)
    assert low is not None and high is not None
    return low, high


def _sources(pool: Pool, turns: Sequence[Turn | Look]) -> list[FromVersion]:
    counted = Counter((turn.checkpoint, turn.version) for turn in turns)
    rows = [
        FromVersion(checkpoint=name, lag=pool.line.lag_of(version), num_samples=n)
        for (name, version), n in counted.items()
    ]
    return sorted(rows, key=lambda row: (row.lag is None, row.lag or 0, row.checkpoint or ""))
