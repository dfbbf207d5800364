"""Judges as their page shows them. Inside a tenant; bounded by time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.core.paginator import Page, Paginator

from evals.judge_evidence import values_of
from evals.judge_record import JudgeRecord, find_judge, judge_versions, records
from evals.judge_trust import paused_judges, trusts
from evals.judging.anchors import Drift, drift
from evals.judging.judge import Protocol
from evals.judging.pairwise import PairVerdict
from evals.judging.panel import PanelVerdict, panel_verdict
from evals.judging.trust import Trust
from evals.models import (
    AnchorRun,
    AnchorSet,
    CanaryRun,
    Comparison,
    JudgeDuty,
    JudgeVersion,
    LiveRating,
    Panel,
    RatingState,
    RunState,
    VerdictKind,
)
from evals.services.anchors import fits
from evals.services.budgets import Spent, spent_today
from evals.services.completers import completer_of
from evals.services.judges import duty_of, judge_of
from evals.services.ratings import blocked_ratings
from registry.errors import InvalidInput
from rl_online.spending.entries import Entry
from rl_online.spending.ledger import Ledger

PAGE = 25
MAX_BLOCKED = 25


@dataclass(frozen=True, kw_only=True)
class JudgeRow:
    """One version with what a judgement of it costs."""

    record: JudgeRecord
    trust: Trust  # over all it ever said, as the gate counts it
    cost_usd: Decimal | None  # a judgement; None: unpriced, or nothing judged
    is_own: bool  # our own weights: priced by device seconds, over all calls of the time
    refusal: str  # why it cannot judge any more; empty: it can

    @property
    def cost_per_thousand(self) -> Decimal | None:
        return None if self.cost_usd is None else 1000 * self.cost_usd


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What a judge has to do, and has done of it."""

    duty: JudgeDuty
    spent: Spent
    protocol: Protocol
    system: str  # what it is told first
    panels: list[Panel]
    num_waiting: int

    @property
    def share_percent(self) -> str:
        return f"{100 * self.duty.share:.12g}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """Another judge on the same anchors: how far it lies from this one."""

    run: AnchorRun
    drift: Drift


@dataclass(frozen=True, kw_only=True, slots=True)
class Blocked:
    """A judgement that could not be had."""

    comparison: Comparison
    reason: str  # what the last failed request said


def rows(ledger: Ledger, *, since: datetime, until: datetime) -> list[JudgeRow]:
    """The newest versions first."""
    return _rows(judge_versions(), ledger, since=since, until=until)


def row(judge_id: int, ledger: Ledger, *, since: datetime, until: datetime) -> JudgeRow:
    """Raises NotFound."""
    return _rows([find_judge(judge_id)], ledger, since=since, until=until)[0]


def _rows(judges: list[JudgeVersion], ledger: Ledger, *, since: datetime, until: datetime) -> list[JudgeRow]:
    trust = trusts(judges)
    spent = {entry.name: entry for entry in ledger.entries if entry.purpose == "judging"}
    return [
        JudgeRow(
            record=record,
            trust=trust[record.judge.pk],
            cost_usd=_cost(record, spent.get(record.judge.model)),
            is_own=_is_own(spent.get(record.judge.model)),
            refusal=_refusal(record.judge),
        )
        for record in records(judges, since=since, until=until)
    ]


def _cost(record: JudgeRecord, entry: Entry | None) -> Decimal | None:
    """Of our own weights: what a call cost on the device, times calls for each judgement."""
    if entry is None or not _is_own(entry) or not record.num_judgements:
        return record.cost_per_judgement
    per_call = entry.spend.per(entry.spend.calls)
    return None if per_call is None else per_call * record.num_calls / record.num_judgements


def _is_own(entry: Entry | None) -> bool:
    return entry is not None and entry.policy is not None


def _refusal(judge: JudgeVersion) -> str:
    try:
        completer_of(judge)
    except InvalidInput as error:
        return error.message
    return ""


def blocked(judge: JudgeVersion) -> list[Blocked]:
    """The newest judgements that could not be had, with the reason. Two queries."""
    found = (
        Comparison.objects.filter(judge=judge, by="judge", verdict=VerdictKind.ERROR)
        .select_related("problem__benchmark")
        .prefetch_related("calls")
        .order_by("-created_at", "-id")[:MAX_BLOCKED]
    )
    return [Blocked(comparison=one, reason=_reason(one)) for one in found]


def _reason(comparison: Comparison) -> str:
    said = [call for call in comparison.calls.all() if call.error]
    return max(said, key=lambda call: call.pk).error if said else ""


def page_of_judgements(
    judge: JudgeVersion, number: str | None, *, verdict: str, since: datetime, until: datetime
) -> Page:
    judged = Comparison.objects.filter(judge=judge, by="judge", created_at__gte=since, created_at__lt=until)
    if verdict:
        judged = judged.filter(verdict=verdict)
    shown = judged.select_related("problem__benchmark").defer("left_text", "right_text").order_by("-created_at", "-id")
    return Paginator(shown, PAGE).get_page(number)


def canary_runs(judge: JudgeVersion, *, limit: int = 10) -> list[CanaryRun]:
    return list(CanaryRun.objects.filter(judge=judge).order_by("-requested_at")[:limit])


def num_blocked(found: Sequence[JudgeRow]) -> int:
    return sum(one.record.num_blocked for one in found)


def work(judge: JudgeVersion, record: JudgeRecord) -> Work:
    asked = judge_of(judge)
    return Work(
        duty=duty_of(judge),
        spent=spent_today(judge),
        protocol=asked.protocol,
        system=asked.system,
        panels=list(Panel.objects.filter(judges__contains=[judge.pk]).order_by("name")),
        num_waiting=record.ratings.get(RatingState.WAITING, 0),
    )


def judged_alike(comparison: Comparison) -> tuple[list[Comparison], PanelVerdict | None]:
    """All that was said about the same two sides of its problem, and what its judges come to together.

    A paused judge abstains; fewer than two judges are no panel.
    """
    alike = Comparison.objects.filter(
        problem=comparison.problem_id, problem__isnull=False, left=comparison.left, right=comparison.right
    )
    found = list(alike.select_related("judge").prefetch_related("calls").order_by("-created_at", "-id")[:PAGE])
    said = {one.judge: PairVerdict(one.verdict) for one in reversed(found) if one.judge is not None}
    paused = paused_judges(said)
    votes = [None if judge.pk in paused else verdict for judge, verdict in said.items()]
    return found or [comparison], panel_verdict(votes) if len(votes) > 1 else None


def panels() -> list[tuple[Panel, list[JudgeVersion]]]:
    """Each with its judges. Two queries."""
    made = list(Panel.objects.order_by("name"))
    judges = JudgeVersion.objects.in_bulk({key for panel in made for key in panel.judges})
    return [(panel, [judges[key] for key in panel.judges if key in judges]) for panel in made]


def blocked_marks(judge: JudgeVersion) -> list[LiveRating]:
    """The newest ratings that could not be had."""
    return list(blocked_ratings(judge).order_by("-created_at", "-id")[:MAX_BLOCKED])


def page_of_ratings(judge: JudgeVersion, number: str | None, *, state: str, since: datetime, until: datetime) -> Page:
    """Newest first; superseded ones stand in their place, marked."""
    rated = LiveRating.objects.filter(judge=judge, created_at__gte=since, created_at__lt=until)
    if state:
        rated = rated.filter(state=state, superseded_at=None)
    return Paginator(rated.order_by("-created_at", "-id"), PAGE).get_page(number)


def anchor_runs(judge: JudgeVersion, *, limit: int = 10) -> list[AnchorRun]:
    runs = AnchorRun.objects.filter(judge=judge).select_related("anchors").defer("anchors__items")
    return list(runs.order_by("-requested_at")[:limit])


def anchor_sets_for(judge: JudgeVersion, *, limit: int = 20) -> list[AnchorSet]:
    """The newest that hold what this judge judges."""
    return [one for one in AnchorSet.objects.order_by("-created_at")[:limit] if fits(judge, one)]


def beside_others(record: JudgeRecord, *, limit: int = 10) -> list[Beside]:
    """The newest runs of other judges on the anchors of this one's newest run."""
    mine = record.anchors
    if mine is None:
        return []
    others = AnchorRun.objects.filter(anchors=mine.anchors_id, state=RunState.DONE).exclude(judge=mine.judge_id)
    newest = others.select_related("judge").order_by("judge_id", "-requested_at").distinct("judge_id")[:limit]
    return [Beside(run=run, drift=drift(values_of(mine), values_of(run))) for run in newest]
