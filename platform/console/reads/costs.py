"""Costs by checkpoint and model, by purpose, and for each thing they bought. Inside a tenant; whole hours."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from django.db import connection
from django.db.models import Count, Q

from console.reads.prices import said
from evals.models import EvalRun, Score, ScoreStatus
from evals.statistics.ratio import Ratio, ratio
from feedback.hourly import REAL_USERS, Counts, Origin, Span, counts_by_origin
from feedback.models import TurnRollup
from registry.models import Deployment, PriceCard
from registry.pricing import Spend
from registry.tenancy import current_project_id
from rl_online.spending.entries import PURPOSES, Entry, known_sum
from rl_online.spending.ledger import Ledger, inference_by_hour

MAX_ROWS = 200
MAX_PROBLEMS = 60_000
MAX_CARDS_NAMED = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Bought:
    """What the money of one side went into."""

    accepted: int = 0  # turns that real users accepted
    settled: int = 0
    solved: int = 0  # answers to benchmarks with the full score
    scored: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class CostRow:
    """One checkpoint or model."""

    name: str
    version: int | None  # None: an external model
    is_serving: bool
    spend: dict[str, Spend]  # purpose -> what it cost; absent: nothing of the kind
    seconds: Decimal  # of our own devices
    tokens: int | None  # None: nobody told any
    bought: Bought
    priced_by: tuple[str, ...] = ()  # the price cards that made it, the newest first
    idle_usd: Decimal | None = None  # its share of the idle time, by the device time it took; None: none, or unpriced
    accepted_ratio: Ratio | None = None  # cost of inference over accepted turns, by hours; None: one of both is unknown
    solved_ratio: Ratio | None = None  # cost of answers over solved ones, by problems; None: so, or not told by answer

    @property
    def total(self) -> Spend:
        return sum(self.spend.values(), Spend())

    @property
    def per_accepted_usd(self) -> Decimal | None:
        """Inference over accepted turns; None: unpriced, or nothing accepted."""
        return self.spend.get("inference", Spend()).per(self.bought.accepted)

    @property
    def per_solved_usd(self) -> Decimal | None:
        """Answers to benchmarks over those that solved their problem; None: unpriced, or nothing solved."""
        return self.spend.get("proving", Spend()).per(self.bought.solved)

    @property
    def accepted_low_usd(self) -> Decimal | None:
        """Of `per_accepted_usd`, the ends of its interval; None: none can be given."""
        return _scaled(self.per_accepted_usd, self.accepted_ratio, "low")

    @property
    def accepted_high_usd(self) -> Decimal | None:
        return _scaled(self.per_accepted_usd, self.accepted_ratio, "high")

    @property
    def solved_low_usd(self) -> Decimal | None:
        """Of `per_solved_usd`."""
        return _scaled(self.per_solved_usd, self.solved_ratio, "low")

    @property
    def solved_high_usd(self) -> Decimal | None:
        return _scaled(self.per_solved_usd, self.solved_ratio, "high")


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """A whole page."""

    rows: tuple[CostRow, ...]  # the dearest first, unpriced ones by calls
    by_purpose: tuple[tuple[str, Spend], ...]
    total: Spend
    bought: Bought
    num_left_out: int

    @property
    def purposes(self) -> list[str]:
        """Those for which anything was called."""
        return [purpose for purpose, spend in self.by_purpose if spend.calls]

    @property
    def per_accepted_usd(self) -> Decimal | None:
        return dict(self.by_purpose)["inference"].per(self.bought.accepted)

    @property
    def per_solved_usd(self) -> Decimal | None:
        return dict(self.by_purpose)["proving"].per(self.bought.solved)


def _scaled(value: Decimal | None, found: Ratio | None, end: str) -> Decimal | None:
    """The end of a ratio's interval, which is a factor, about the exact value."""
    bound = None if found is None else getattr(found, end)
    if value is None or found is None or bound is None:
        return None
    return value * Decimal(str(bound / found.value))


def costs(ledger: Ledger) -> Costs:
    """Nine queries at most beside the ledger's."""
    bought = _bought(ledger)
    now_serving = serving()
    names = sorted({entry.name for entry in ledger.entries} | bought.keys())
    by_hour, by_problem = _accepted_by_hour(ledger), _solved_by_problem(ledger)
    cards = PriceCard.objects.in_bulk({card for entry in ledger.entries for card in entry.cards})
    rows = [
        replace(
            _row(name, ledger.entries, bought.get(name, Bought()), is_serving=name in now_serving),
            accepted_ratio=ratio(by_hour.get(name, ())),
            solved_ratio=ratio(by_problem.get(name, ())),
            priced_by=_priced_by(name, ledger, cards),
        )
        for name in names
    ]
    rows = [replace(row, idle_usd=_idle_share(row, ledger)) for row in rows]
    rows.sort(key=lambda row: (-row.total.cost_usd, -row.total.calls, row.name))
    return Costs(
        rows=tuple(rows[:MAX_ROWS]),
        by_purpose=tuple((purpose, _sum(ledger.entries, purpose)) for purpose in PURPOSES),
        total=ledger.total,
        bought=Bought(
            accepted=sum(one.accepted for one in bought.values()),
            settled=sum(one.settled for one in bought.values()),
            solved=sum(one.solved for one in bought.values()),
            scored=sum(one.scored for one in bought.values()),
        ),
        num_left_out=max(0, len(rows) - MAX_ROWS),
    )


def _row(name: str, entries: Iterable[Entry], bought: Bought, *, is_serving: bool) -> CostRow:
    mine = [entry for entry in entries if entry.name == name]
    return CostRow(
        name=name,
        version=mine[0].version if mine else _version(name),
        is_serving=is_serving,
        spend={entry.purpose: entry.spend for entry in mine},
        seconds=sum((entry.seconds for entry in mine), Decimal(0)),
        tokens=known_sum(entry.tokens for entry in mine),
        bought=bought,
    )


def _priced_by(name: str, ledger: Ledger, cards: Mapping[int, PriceCard]) -> tuple[str, ...]:
    used = {card for entry in ledger.entries if entry.name == name for card in entry.cards}
    newest = sorted((cards[card] for card in used), key=lambda card: card.valid_from, reverse=True)
    return tuple(said(card) for card in newest[:MAX_CARDS_NAMED])


def _idle_share(row: CostRow, ledger: Ledger) -> Decimal | None:
    idle = ledger.idle.spend
    if not idle.calls or not idle.is_known or not row.seconds:
        return None
    return idle.cost_usd * row.seconds / ledger.seconds


def _accepted_by_hour(ledger: Ledger) -> dict[str, list[tuple[float, float]]]:
    """Name -> (cost of inference, accepted turns) of each hour with either; without names with an unpriced call."""
    spends: dict[str, dict[datetime, Spend]] = defaultdict(lambda: defaultdict(Spend))
    for entry in inference_by_hour(ledger.since, ledger.until):
        assert entry.hour is not None
        spends[entry.name][entry.hour] += entry.spend
    accepted: dict[str, dict[datetime, int]] = defaultdict(dict)
    rows = TurnRollup.objects.filter(hour__gte=ledger.since, hour__lt=ledger.until, source=REAL_USERS, accepted__gt=0)
    for hour, policy, version, model, n in rows.values_list("hour", "policy", "version", "model", "accepted"):
        accepted[str(Origin(policy=policy, version=version, model=model))][hour] = n
    return {
        name: [
            (float(hours[hour].cost_usd) if hour in hours else 0.0, float(accepted[name].get(hour, 0)))
            for hour in sorted(hours.keys() | accepted[name].keys())
        ]
        for name, hours in spends.items()
        if all(spend.is_known for spend in hours.values())
    }


def _solved_by_problem(ledger: Ledger) -> dict[str, list[tuple[float, float]]]:
    """Name -> (cost of its answers, solved ones) of each problem; without names of which an answer's cost is unknown.

    What the provider billed stands before what was calculated; own weights pay by the time that each answer took.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT coalesce(run.checkpoint, run.model), run.checkpoint IS NOT NULL,
              sum(coalesce((of.usage->>'provided_usd')::numeric, of.cost_usd)), sum(of.latency_ms),
              count(*) FILTER (WHERE of.cost_usd IS NULL AND NOT of.usage ? 'provided_usd'),
              count(*) FILTER (WHERE of.latency_ms IS NULL),
              count(*) FILTER (WHERE of.status = 'scored' AND of.value >= 1)
            FROM evals_evalrun run JOIN evals_score of ON of.run_id = run.id AND of.scorer = run.scorer
            WHERE run.project_id = %s AND of.project_id = %s AND run.started_at >= %s AND run.started_at < %s
              AND run.source_key IS NULL AND of.status <> 'error'
            GROUP BY 1, 2, of.problem_id
            LIMIT %s
            """,
            [current_project_id(), current_project_id(), ledger.since, ledger.until, MAX_PROBLEMS],
        )
        rows = cursor.fetchall()
    rates = {one.name: one.usd_per_latency_second for one in ledger.entries if one.purpose == "proving" and one.policy}
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    unknown = set()
    for name, is_ours, billed, latency_ms, num_unbilled, num_untimed, solved in rows:
        rate = rates.get(name)
        if is_ours and rate is not None and not num_untimed:
            found[name].append((float(rate) * latency_ms / 1000, float(solved)))
        elif not is_ours and not num_unbilled:
            found[name].append((float(billed), float(solved)))
        else:
            unknown.add(name)
    return {name: pairs for name, pairs in found.items() if name not in unknown and len(rows) < MAX_PROBLEMS}


def _version(name: str) -> int | None:
    _, at, version = name.rpartition("@")
    return int(version) if at and version.isdigit() and len(version) < 10 else None


def _sum(entries: Iterable[Entry], purpose: str) -> Spend:
    return sum((entry.spend for entry in entries if entry.purpose == purpose), Spend())


def serving() -> set[str]:
    deployments = Deployment.objects.filter(alias="default").select_related("checkpoint__policy")
    return {str(deployment.checkpoint) for deployment in deployments}


def _bought(ledger: Ledger) -> dict[str, Bought]:
    users = counts_by_origin(Span.in_hours(ledger.since, ledger.until), source=REAL_USERS)
    found = {str(origin): _users(counts) for origin, counts in users.items() if origin.policy or origin.model}
    for name, solved, scored in _solved(ledger):
        before = found.get(name, Bought())
        found[name] = Bought(accepted=before.accepted, settled=before.settled, solved=solved, scored=scored)
    return found


def _users(counts: Counts) -> Bought:
    return Bought(accepted=counts.accepted, settled=counts.settled)


def _solved(ledger: Ledger) -> list[tuple[str, int, int]]:
    """(name, answers with the full score, scored answers) of runs that were made, not imported, in this time."""
    runs = EvalRun.objects.filter(started_at__gte=ledger.since, started_at__lt=ledger.until, source={})
    rows = (
        Score.objects.filter(run__in=runs, status=ScoreStatus.SCORED)
        .values_list("run__checkpoint", "run__model")
        .annotate(solved=Count("id", filter=Q(value__gte=1)), scored=Count("id"))
    )
    return [(checkpoint or model or "", solved, scored) for checkpoint, model, solved, scored in rows]
