"""Cost against quality on one benchmark: for each checkpoint and model the mean cost of a problem and the mean score.

Both carry an interval clustered by family, or by problem where it has none: repeats of one are not independent. Costs
are log-normal: the interval is symmetric on the logarithmic axis.
Runs that were imported stand beside those made here, with what their files tell of their costs.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import Count, F

from console.reads.prices import said
from evals.models import Benchmark, EvalRun, EvalState, Score
from evals.statistics.distributions import stdtrit
from evals.statistics.means import clustered_standard_error
from evals.statistics.proportions import wilson_at
from registry.list_prices import REFERENCES
from registry.models import PriceCard
from registry.price_cards import all_cards, card_at, prices_of_card
from registry.pricing import InvalidUsage, Spend, Usage, cost_of_request
from rl_online.spending.entries import known_sum
from rl_online.spending.ledger import Ledger

MAX_SIDES = 200  # those that ran last
MAX_ANSWERS = 60_000  # of all runs together
COST_INTERVAL = "log clustered t"  # on the logarithm, G - 1 degrees of freedom for G clusters


@dataclass(frozen=True, kw_only=True, slots=True)
class Rated:
    """One side on one benchmark. Costs are None where an answer is unpriced."""

    name: str
    version: int | None
    quality: float | None  # None: nothing scored
    quality_low: float
    quality_high: float
    interval: str
    num_problems: int  # scored at least once
    cost_usd: float | None  # mean of a problem
    cost_low: float | None  # None: a single problem
    cost_high: float | None
    num_unpriced: int
    median_tokens: float | None
    priced_by: str = ""  # what made the cost, in words
    is_imported: bool = False


def benchmarks(since: datetime, until: datetime) -> list[Benchmark]:
    """Those with a run in this time, by name."""
    runs = EvalRun.objects.filter(started_at__gte=since, started_at__lt=until).exclude(
        state__in=(EvalState.FAILED, EvalState.CANCELLED)
    )
    return list(Benchmark.objects.filter(pk__in=runs.values("benchmark")).order_by("name", "-version")[:100])


@dataclass(frozen=True, kw_only=True, slots=True)
class Sides:
    rated: list[Rated]
    left_out: list[str]  # their runs have more answers than are read beside those of newer runs
    num_older: int = 0  # sides beyond MAX_SIDES


def sides(benchmark: Benchmark, ledger: Ledger) -> Sides:
    """The newest run of each side in the ledger's time, read whole or not at all. Five queries."""
    runs = EvalRun.objects.filter(
        benchmark=benchmark, started_at__gte=ledger.since, started_at__lt=ledger.until
    ).exclude(state__in=(EvalState.FAILED, EvalState.CANCELLED))
    latest = runs.order_by("checkpoint", "model", "-started_at", "-id").distinct("checkpoint", "model")
    by_time = EvalRun.objects.filter(pk__in=latest.values("pk")).order_by("-started_at", "-id")
    newest = {run.checkpoint or run.model or "": run for run in by_time[:MAX_SIDES]}
    rows = Score.objects.filter(run__in=newest.values(), scorer=F("run__scorer"))
    read, left_out = _that_fit(newest, dict(rows.values_list("run").annotate(n=Count("pk"))))
    answers: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    rows = rows.filter(run__in=read.values()).order_by("run_id", "problem_id", "repeat")
    columns = ("run_id", "problem_id", "problem__slices", "value", "latency_ms", "usage", "cost_usd")
    for row in rows.values(*columns)[:MAX_ANSWERS]:  # a run that still goes on may have grown since it was counted
        answers[row["run_id"]].append(row)
    cards = all_cards()
    found = [_rated(name, run, answers[run.id], cards, ledger) for name, run in sorted(read.items())]
    return Sides(rated=found, left_out=left_out, num_older=by_time.count() - len(newest))


def _that_fit(runs: Mapping[str, EvalRun], num_answers: Mapping[Any, int]) -> tuple[dict[str, EvalRun], list[str]]:
    """Those that are at most MAX_ANSWERS together, and the names of the others; the first first."""
    left, fitting = MAX_ANSWERS, {}
    for name, run in runs.items():
        if (n := num_answers.get(run.id, 0)) <= left:
            left -= n
            fitting[name] = run
    return fitting, sorted(runs.keys() - fitting.keys())


def _rated(name: str, run: EvalRun, answers: list[dict[str, Any]], cards: list[PriceCard], ledger: Ledger) -> Rated:
    scored = [row for row in answers if row["value"] is not None]
    quality, low, high, interval = _quality(scored)
    costs, priced_by = _costs(name, run, answers, cards, ledger)
    priced = [cost for cost in costs if cost is not None]
    is_priced = bool(priced) and len(priced) == len(costs)
    mean = sum(priced) / len(priced) if is_priced else None
    cost_low, cost_high = _log_bounds(mean, priced, [_family(row) for row in answers])
    tokens = sorted(row["usage"]["output"] for row in answers if isinstance(row["usage"].get("output"), int))
    _, at, version = name.rpartition("@")
    return Rated(
        name=name,
        version=int(version) if run.checkpoint and at and version.isdigit() else None,
        quality=quality,
        quality_low=low,
        quality_high=high,
        interval=interval,
        num_problems=_num_problems(scored),
        cost_usd=mean,
        cost_low=cost_low,
        cost_high=cost_high,
        num_unpriced=len(costs) - len(priced),
        median_tokens=float(tokens[len(tokens) // 2]) if tokens else None,
        priced_by=priced_by,
        is_imported=run.source_key is not None,
    )


def _quality(scored: list[dict[str, Any]]) -> tuple[float | None, float, float, str]:
    values = [float(row["value"]) for row in scored]
    if not values:
        return None, 0.0, 1.0, "wilson_clustered"
    mean = sum(values) / len(values)
    error = clustered_standard_error(values, [_family(row) for row in scored])
    tosses = mean * (1 - mean) / len(values)
    if error is not None and tosses:
        n = len(values) / max(1.0, error**2 / tosses)
    else:  # nothing varies, which tells nothing of how alike the repeats of a problem are
        n = _num_problems(scored)
    low, high = wilson_at(mean, n)
    return mean, low, high, "wilson_clustered"


def _costs(
    name: str, run: EvalRun, answers: list[dict[str, Any]], cards: list[PriceCard], ledger: Ledger
) -> tuple[list[float | None], str]:
    """Of each answer, and what made them."""
    if run.checkpoint and run.source_key is None:
        return _own_costs(name, answers, ledger), "device seconds of its answers by the price of a device hour"
    at = run.measured_at or run.started_at
    card = card_at(cards, run.model or "", at.replace(minute=0, second=0, microsecond=0))
    told = [_told(row) for row in answers]
    costs = [_by_card(row, card, at) if cost is None else cost for row, cost in zip(answers, told, strict=True)]
    by_card = any(cost is None for cost in told) and card is not None
    words = "as its file tells" if run.source_key else "by the card when it was asked"
    if by_card and card is not None:
        words = f"its tokens by the {said(card)}"
    return [None if cost is None else float(cost) for cost in costs], words


def _told(row: dict[str, Any]) -> Decimal | None:
    """As the provider billed it, else as it was kept with the answer."""
    billed = row["usage"].get("provided_usd")
    return row["cost_usd"] if billed is None else Decimal(str(billed))


def _own_costs(name: str, answers: list[dict[str, Any]], ledger: Ledger) -> list[float | None]:
    """What all answers of this side to benchmarks cost, shared out by how long each took."""
    entry = next((one for one in ledger.entries if (one.name, one.purpose) == (name, "proving")), None)
    rate = entry.usd_per_latency_second if entry else None
    known = [row["latency_ms"] for row in answers if row["latency_ms"]]
    if rate is None or not known:
        return [None] * len(answers)
    mean_ms = sum(known) / len(known)
    return [float(rate) * (row["latency_ms"] or mean_ms) / 1000 for row in answers]


def _by_card(row: dict[str, Any], card: PriceCard | None, at: datetime) -> Decimal | None:
    told = row["usage"]
    counts = {kind: told[kind] for kind in ("input", "cache_read", "cache_write", "output") if kind in told}
    if card is None or not {"input", "output"} <= counts.keys() or not all(isinstance(n, int) for n in counts.values()):
        return None
    try:
        return cost_of_request(Usage(**counts), prices_of_card(card), at=at, processing=told.get("processing"))
    except InvalidUsage:
        return None


def _log_bounds(mean: float | None, costs: list[float], families: list[object]) -> tuple[float | None, float | None]:
    """mean * exp(-+ t * SE / mean), t with G - 1 degrees of freedom; None for a single cluster or a cost of 0."""
    if not mean or len(costs) < 2:
        return None, None
    error = clustered_standard_error(costs, families)
    if error is None:
        return None, None
    factor = math.exp(float(stdtrit(len(set(families)) - 1, 0.975)) * error / mean)
    return mean / factor, mean * factor


def _num_problems(rows: list[dict[str, Any]]) -> int:
    return len({row["problem_id"] for row in rows})


def _family(row: dict[str, Any]) -> object:
    """What an answer is alike with: its problem's family, else its problem."""
    family = row["problem__slices"].get("family")
    return ("alone", row["problem_id"]) if family is None else ("family", str(family))


@dataclass(frozen=True, kw_only=True, slots=True)
class ListPrice:
    """What a million tokens of one model cost now; no card: unpriced."""

    model: str
    card: PriceCard | None

    @property
    def words(self) -> str:
        return "no price card and not in the list" if self.card is None else said(self.card)


def list_prices(rated: Sequence[Rated], now: datetime) -> list[ListPrice]:
    """Of the models that others measure themselves against, then of the models of this benchmark. One query."""
    cards = all_cards()
    models = [*REFERENCES, *(one.name for one in rated if one.version is None and one.name not in REFERENCES)]
    return [ListPrice(model=model, card=card_at(cards, model, now)) for model in models]


def own_millions(ledger: Ledger, rated: Sequence[Rated]) -> list[tuple[str, Decimal | None, int | None]]:
    """(checkpoint, what a million of its tokens cost here, tokens that rests on), whatever they were asked for.

    Input and output together, since a device's second is not paid by either; None: unpriced, or no tokens told.
    """
    found = []
    for one in rated:
        if one.version is None:
            continue
        mine = [entry for entry in ledger.entries if entry.name == one.name and entry.purpose != "training"]
        tokens = known_sum(entry.tokens for entry in mine)
        spend = sum((entry.spend for entry in mine), Spend())
        usd = spend.per(tokens or 0)
        found.append((one.name, None if usd is None else usd * 1_000_000, tokens))
    return found
