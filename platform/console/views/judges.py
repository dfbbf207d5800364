"""Judges: how far each version can be believed, what it costs, and what to do when it cannot be asked."""

from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console.access import MemberRequest, carry_out, member_required
from console.reads import judges as reads
from console.reads.spending.ledger import ledger
from console.timerange import TimeRange
from evals.judge_record import find_judge
from evals.models import RatingState, VerdictKind
from evals.selectors import find_comparison
from evals.services.canaries import request_canaries
from evals.services.retries import request_retry
from registry.models import Role

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
