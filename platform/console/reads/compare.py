"""Two checkpoints or models: what tests, judges, people and users say, and what each takes. Inside a tenant.

`b` is the new side: differences are b - a.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from django.db.models import Q

from evals.comparing.effects import Effects, Expense, effects_of, expense_of
from evals.comparing.matching import Unmatched, match_runs
from evals.comparing.names import Name
from evals.comparing.problems import Answer, Change, Paired, ProblemPair, Steadiness, read_pairs
from evals.models import Comparison, EvalRun, JudgeVersion, RunState, VerdictKind
from evals.standings import MAX_VOTES, RESULTS
from evals.statistics.proportions import ShareDifference, newcombe
from evals.statistics.wins import WinRate, win_rate
from feedback.hourly import Share, Span, shares
from registry.models import Checkpoint, Deployment
from rl_online.models import UpdateRun
from rl_online.services.overlaps import seen_in_training
from rl_online.spending.ledger import Ledger

MAX_CHOICES = 60
ORDER = (Change.REGRESSION, Change.IMPROVEMENT, Change.EQUAL, Change.UNSCORED, Change.ONE_SIDED)
MIRRORED = {VerdictKind.LEFT: VerdictKind.RIGHT, VerdictKind.RIGHT: VerdictKind.LEFT}


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One benchmark on which both were measured."""

    paired: Paired
    effects: Effects
    expense: Expense


@dataclass(frozen=True, kw_only=True, slots=True)
class Problems:
    """The problems of every benchmark that match a filter, regressions first."""

    rows: tuple[ProblemPair, ...]
    counts: dict[str, int]  # change -> problems, before the filter by change and steadiness
    steadiness: dict[str, dict[str, int]]  # change -> steadiness -> problems, likewise
    slices: tuple[str, ...]  # "half: seen families", ... to choose from


@dataclass(frozen=True, kw_only=True, slots=True)
class Voted:
    """What one judge version, or people, said of b against a."""

    judge: JudgeVersion | None  # None: people
    rate: WinRate


@dataclass(frozen=True, kw_only=True, slots=True)
class Lived:
    """Accept shares from live turns; None: no settled turn in this time."""

    a: Share | None
    b: Share | None
    difference: ShareDifference

    @property
    def is_clustered(self) -> bool:
        return any(side is not None and side.moments.is_clustered for side in (self.a, self.b))


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairing:
    """Two sides worth comparing, and why."""

    a: str
    b: str
    why: str


def measured(a: Name, b: Name, *, is_without_seen: bool = False) -> tuple[list[Measured], tuple[Unmatched, ...], int]:
    """Every benchmark both ran, the runs without a partner, and how many of the problems training has seen.

    `is_without_seen` leaves those problems out of everything. Three queries.
    """
    matching = match_runs(a, b)
    pairs = read_pairs(matching)
    seen = seen_in_training([one.key for paired in pairs for one in paired.problems])
    if is_without_seen and seen:
        pairs = [replace(one, problems=tuple(row for row in one.problems if row.key not in seen)) for one in pairs]
    found = [
        Measured(paired=paired, effects=effects_of(paired), expense=expense_of(paired.problems)) for paired in pairs
    ]
    return found, matching.unmatched, len(seen)


def problems(found: Sequence[Measured], *, change: str = "", slice: str = "", steadiness: str = "") -> Problems:
    """`change` is a Change, `steadiness` a Steadiness, `slice` as `effects_of` writes it; empty is everything."""
    everything = [problem for one in found for problem in one.paired.problems]
    slices = {f"{name}: {value}" for one in everything for name, value in one.slices.items()}
    kept = [one for one in everything if not slice or slice in {f"{k}: {v}" for k, v in one.slices.items()}]
    counts: dict[str, int] = defaultdict(int)
    steady: dict[str, dict[str, int]] = {}
    for one in kept:
        counts[one.change.value] += 1
        if one.steadiness is not None:
            of = steady.setdefault(one.change.value, dict.fromkeys(Steadiness, 0))
            of[one.steadiness] += 1
    shown = [one for one in kept if not change or one.change == change]
    shown = [one for one in shown if not steadiness or one.steadiness == steadiness]
    shown.sort(key=lambda one: (ORDER.index(one.change), -abs(one.difference or 0.0), one.benchmark, one.problem_id))
    return Problems(rows=tuple(shown), counts=dict(counts), steadiness=steady, slices=tuple(sorted(slices)[:200]))


def votes(a: Name, b: Name, *, since: datetime, until: datetime) -> list[Voted]:
    """Win rates of b over a, each judge version and people apart. Two queries."""
    pair = Q(left=a.text, right=b.text) | Q(left=b.text, right=a.text)
    rows = (
        Comparison.objects.filter(pair, by__in=("judge", "person"), set__isnull=True)
        .filter(created_at__gte=since, created_at__lt=until)
        .order_by("-created_at", "-id")
        .values_list("judge_id", "left", "verdict", "problem_id")[:MAX_VOTES]
    )
    said: dict[int | None, list[tuple[float | None, object]]] = defaultdict(list)
    for place, (judge_id, left, verdict, problem) in enumerate(rows):
        kind = VerdictKind(verdict)
        result = RESULTS.get(kind if left == b.text else MIRRORED.get(kind, kind))
        said[judge_id].append((result, ("alone", place) if problem is None else problem))
    judges = JudgeVersion.objects.in_bulk([judge_id for judge_id in said if judge_id is not None])
    return [
        Voted(
            judge=judges.get(judge_id) if judge_id is not None else None,
            rate=win_rate([result for result, _ in results], clusters=[cluster for _, cluster in results]),
        )
        for judge_id, results in sorted(said.items(), key=lambda item: (item[0] is None, item[0] or 0))
    ]


def judged(problem: int, a: Name, b: Name) -> list[Comparison]:
    """What judges and people said about both answers to one problem, with every call; the newest 20. Two queries."""
    pair = Q(left=a.text, right=b.text) | Q(left=b.text, right=a.text)
    said = Comparison.objects.filter(pair, problem_id=problem).select_related("judge").prefetch_related("calls")
    return list(said.order_by("-created_at", "-id")[:20])


def lived(a: Name, b: Name, *, since: datetime, until: datetime) -> Lived:
    """Accept shares of real users in whole hours. One query."""
    policy = a.policy if a.policy == b.policy else None
    by_origin = {str(one.origin): one for one in shares(Span.in_hours(since, until), policy=policy, is_divided=False)}
    sides = by_origin.get(a.text), by_origin.get(b.text)
    return Lived(a=sides[0], b=sides[1], difference=newcombe(_bounds(sides[1]), _bounds(sides[0])))


def _bounds(share: Share | None) -> tuple[float, float, float] | None:
    return None if share is None else (share.value, share.bounds.low, share.bounds.high)


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """What an answer of one side takes, over its answers to benchmarks in this time."""

    num_answers: int
    seconds: float | None  # of our own device; None: an external model, or nothing answered
    cost_usd: Decimal | None  # mean; None: unpriced, or nothing answered
    num_unpriced: int
    usd_per_latency_second: Decimal | None = None  # of our own weights


def taken(name: Name, ledger: Ledger) -> Taken:
    """Failed and repeated answers count too: they were paid for."""
    entry = next((one for one in ledger.entries if (one.name, one.purpose) == (name.text, "proving")), None)
    if entry is None or not entry.spend.calls:
        return Taken(num_answers=0, seconds=None, cost_usd=None, num_unpriced=0)
    return Taken(
        num_answers=entry.spend.calls,
        seconds=float(entry.seconds) / entry.spend.calls if entry.policy is not None else None,
        cost_usd=entry.spend.per(entry.spend.calls),
        num_unpriced=entry.spend.unpriced,
        usd_per_latency_second=entry.usd_per_latency_second if entry.policy is not None else None,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class CostedPair:
    """One problem with what each answer cost; None: unpriced, or not answered."""

    problem: ProblemPair
    cost_a: Decimal | None
    cost_b: Decimal | None


def costed(rows: Sequence[ProblemPair], sides: tuple[Taken, Taken]) -> list[CostedPair]:
    """As billed; of our own weights what all answers to benchmarks cost, shared out by how long each took."""
    return [CostedPair(problem=row, cost_a=_cost(row.a, sides[0]), cost_b=_cost(row.b, sides[1])) for row in rows]


def _cost(answer: Answer | None, taken: Taken) -> Decimal | None:
    if answer is None or answer.cost_usd is not None:
        return answer.cost_usd if answer else None
    if taken.usd_per_latency_second is None or answer.latency_ms is None:
        return None
    return taken.usd_per_latency_second * Decimal(str(answer.latency_ms / 1000))


def names() -> list[str]:
    """What can be chosen: the newest checkpoints, then external models that were measured."""
    checkpoints = Checkpoint.objects.select_related("policy").order_by("-created_at")[:MAX_CHOICES]
    models = EvalRun.objects.filter(model__isnull=False).order_by("model").values_list("model", flat=True).distinct()
    return [str(one) for one in checkpoints] + list(models[:MAX_CHOICES])


def suggestions() -> list[Pairing]:
    """Pairs that answer a question somebody has: the newest candidate, and what serves against what served."""
    found = []
    deployments = Deployment.objects.filter(alias="default").select_related("checkpoint__policy", "previous__policy")
    for deployment in deployments.order_by("policy__created_at")[:3]:
        serving = deployment.checkpoint
        newest = (
            UpdateRun.objects.filter(policy=deployment.policy_id, checkpoint__isnull=False)
            .exclude(checkpoint=serving)
            .select_related("checkpoint__policy")
            .order_by("-version")
            .first()
        )
        if newest is not None and newest.checkpoint is not None:
            found.append(Pairing(a=str(serving), b=str(newest.checkpoint), why="the newest candidate against serving"))
        if deployment.previous is not None:
            found.append(Pairing(a=str(deployment.previous), b=str(serving), why="what serves against what served"))
        first = Checkpoint.objects.filter(policy=deployment.policy_id).select_related("policy").earliest("version")
        if first.pk not in (serving.pk, deployment.previous_id):
            found.append(Pairing(a=str(first), b=str(serving), why="what all updates together came to"))
    return found


def num_runs() -> int:
    """Whether anything was ever measured."""
    return EvalRun.objects.exclude(state=RunState.FAILED).count()
