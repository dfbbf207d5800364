"""Judges as their page shows them. Inside a tenant; bounded by time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.core.paginator import Page, Paginator

from console.reads.spending.entries import Entry
from console.reads.spending.ledger import Ledger
from evals.judge_record import JudgeRecord, find_judge, judge_versions, records, trusts
from evals.judging.trust import Trust
from evals.models import CanaryRun, Comparison, JudgeVersion, VerdictKind
from evals.services.completers import completer_of
from registry.errors import InvalidInput

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
