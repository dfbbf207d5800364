"""Judges: how far each version can be believed, what it costs, and what to do when it cannot be asked."""

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console.access import MemberRequest, carry_out, member_required
from console.page_tables import PageTable, Rows
from console.reads import judges as reads
from console.timerange import TimeRange
from evals.judge_record import find_judge
from evals.models import RatingState, VerdictKind
from evals.selectors import find_comparison
from evals.services.canaries import request_canaries
from evals.services.retries import request_retry
from evals.statistics.agreement import Agreement
from evals.statistics.proportions import Share
from registry.models import Role
from rl_online.spending.ledger import ledger

DEFAULT_RANGE = "90d"


@require_safe
@member_required()
def judges(request: MemberRequest) -> HttpResponse:
    time_range = TimeRange.of(request, DEFAULT_RANGE)
    rows = reads.rows(ledger(time_range.start, time_range.end), since=time_range.start, until=time_range.end)
    return render(
        request,
        "judges/judges.html",
        {
            "time_range": time_range,
            "rows": rows,
            "num_blocked": reads.num_blocked(rows),
            "tables": TABLES,
            "panels": reads.panels(),
            "marking": [row.record.judge for row in rows if not row.record.judge.is_pairwise],
        },
    )


@require_safe
@member_required()
def judge(request: MemberRequest, judge: int) -> HttpResponse:
    time_range = TimeRange.of(request, DEFAULT_RANGE)
    verdict = request.GET.get("verdict", "")
    verdict = verdict if verdict in VerdictKind.values else ""
    state = request.GET.get("state", "")
    state = state if state in RatingState.values else ""
    row = reads.row(judge, ledger(time_range.start, time_range.end), since=time_range.start, until=time_range.end)
    found = row.record.judge
    context: dict[str, Any] = {
        "time_range": time_range,
        "row": row,
        "record": row.record,
        "judge": found,
        "verdicts": [(name, row.record.verdicts.get(name, 0)) for name in VerdictKind.values],
        "verdict": verdict,
        "page": reads.page_of_judgements(
            found, request.GET.get("page"), verdict=verdict, since=time_range.start, until=time_range.end
        ),
        "blocked": reads.blocked(found),
        "canary_runs": reads.canary_runs(found),
        "work": reads.work(found, row.record),
        "blocked_marks": reads.blocked_marks(found),
        "states": [(name, row.record.ratings.get(name, 0)) for name in RatingState.values],
        "state": state,
        "ratings": reads.page_of_ratings(
            found, request.GET.get("page"), state=state, since=time_range.start, until=time_range.end
        ),
        "anchor_runs": reads.anchor_runs(found),
        "anchor_sets": reads.anchor_sets_for(found) if Role(request.member.role).may(Role(Role.ENGINEER)) else [],
        "beside_others": reads.beside_others(row.record),
    }
    return render(request, "judges/judge.html", context)


@require_safe
@member_required()
def comparison(request: MemberRequest, comparison: int) -> HttpResponse:
    """Two answers to one prompt with what was said about them, by this judge and by others."""
    found = find_comparison(comparison)
    judged, panel = reads.judged_alike(found)
    return render(request, "judges/comparison.html", {"comparison": found, "judged": judged, "panel": panel})


@require_POST
@member_required(Role.ENGINEER)
def canaries(request: MemberRequest, judge: int) -> HttpResponse:
    found = find_judge(judge)

    def act() -> str:
        request_canaries(found, actor=request.user.get_username())
        return f"Canaries of {found} are asked; the result stands here in a moment."

    return carry_out(request, act, back=_page(request, judge))


@require_POST
@member_required(Role.ENGINEER)
def retry(request: MemberRequest, judge: int) -> HttpResponse:
    found = find_judge(judge)

    def act() -> str:
        num = request_retry(found, actor=request.user.get_username())
        return f"{num} judgement{'' if num == 1 else 's'} of {found} {'is' if num == 1 else 'are'} asked for again."

    return carry_out(request, act, back=_page(request, judge))


def _page(request: MemberRequest, judge: int) -> str:
    return reverse("console:judge", args=[request.member.project.slug, judge])


def _ask(request: HttpRequest) -> Callable[[], Rows]:
    time_range = TimeRange.of(request, DEFAULT_RANGE)
    since, until = time_range.start, time_range.end
    return lambda: [_exported(row) for row in reads.rows(ledger(since, until), since=since, until=until)]


def _exported(row: reads.JudgeRow) -> tuple[Any, ...]:
    record = row.record
    shares = (record.consistent, record.first_slot, record.unparsable, record.failed)
    return (
        record.judge.name, record.judge.model, record.last_at, row.trust.has_vote, row.trust.is_paused,
        record.standing.value, record.num_judgements, record.num_blocked, *_agreed(record.beside_tests),
        *_agreed(record.beside_people), *(value for share in shares for value in _shared(share)),
        row.cost_usd if record.num_judgements else None,
    )  # fmt: skip


def _agreed(agreement: Agreement) -> tuple[Any, ...]:
    return (*_shared(agreement.agreement), agreement.kappa, agreement.kappa_low, agreement.kappa_high)


def _shared(share: Share) -> tuple[Any, ...]:
    """Of nothing no share and no bounds are known."""
    bounds = (None, None) if share.share is None else (share.low, share.high)
    return (share.share, *bounds, share.n)


SHARED, AGREED = ("share", "low", "high", "n"), ("share", "low", "high", "n", "kappa", "kappa_low", "kappa_high")
COLUMNS = (
    "judge", "model", "last_at", "has_vote", "is_paused", "canaries", "judgements", "blocked",
    *(f"{name}_{what}" for name in ("tests", "people") for what in AGREED),
    *(f"{name}_{what}" for name in ("consistent", "prefers_first", "unparsable", "failed") for what in SHARED),
    "judgement_usd",
)  # fmt: skip
TABLES = (PageTable(name="judges", title="Judges", page="judges", columns=COLUMNS, ask=_ask),)
