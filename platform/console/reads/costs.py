"""Costs by checkpoint and model, by purpose, and for each thing they bought. Inside a tenant; whole hours."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from django.db.models import Count, Q

from console.reads.spending.entries import PURPOSES, Entry, known_sum
from console.reads.spending.ledger import Ledger
from evals.models import EvalRun, Score, ScoreStatus
from feedback.hourly import REAL_USERS, Counts, Span, counts_by_origin
from registry.models import Deployment
from registry.pricing import Spend

MAX_ROWS = 200


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
    def cells(self) -> list[Spend | None]:
        """In the order of PURPOSES."""
        return [self.spend.get(purpose) for purpose in PURPOSES]


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """A whole page."""

    rows: tuple[CostRow, ...]  # the dearest first, unpriced ones by calls
    by_purpose: tuple[tuple[str, Spend], ...]
    total: Spend
    bought: Bought
    num_left_out: int

    @property
    def per_accepted_usd(self) -> Decimal | None:
        return dict(self.by_purpose)["inference"].per(self.bought.accepted)

    @property
    def per_solved_usd(self) -> Decimal | None:
        return dict(self.by_purpose)["proving"].per(self.bought.solved)


def costs(ledger: Ledger) -> Costs:
    """Three queries beside the ledger's."""
    bought = _bought(ledger)
    serving = _serving()
    names = sorted({entry.name for entry in ledger.entries} | bought.keys())
    rows = [_row(name, ledger.entries, bought.get(name, Bought()), is_serving=name in serving) for name in names]
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


def _version(name: str) -> int | None:
    _, at, version = name.rpartition("@")
    return int(version) if at and version.isdigit() and len(version) < 10 else None


def _sum(entries: Iterable[Entry], purpose: str) -> Spend:
    return sum((entry.spend for entry in entries if entry.purpose == purpose), Spend())


def _serving() -> set[str]:
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
