"""Compare any two checkpoints or models; `b` is the new side, differences are b - a."""

from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from console.access import MemberRequest, member_required
from console.charts.forest import ForestRow, forest
from console.reads import compare as reads
from console.reads.spending.ledger import ledger
from console.timerange import TimeRange
from evals.comparing.answers import find_problem, side_by_side
from evals.comparing.names import Name
from evals.comparing.problems import Change
from registry.errors import InvalidInput

PAGE = 40
DEFAULT_RANGE = "30d"


@require_safe
@member_required()
def compare(request: MemberRequest) -> HttpResponse:
    time_range = TimeRange.of(request, DEFAULT_RANGE)
    asked = {side: request.GET.get(side, "").strip() for side in ("a", "b")}
    frame: dict[str, Any] = {"asked": asked, "names": reads.names(), "time_range": time_range}
    if not all(asked.values()):
        return render(request, "compare/choose.html", frame | _choices(asked))
    try:
        a, b = (Name.of(text, field=side) for side, text in asked.items())
    except InvalidInput as error:
        return render(request, "compare/choose.html", frame | _choices(asked) | {"problem": error}, status=error.status)
    return render(request, "compare/compare.html", frame | _compared(request, a, b, time_range))


@require_safe
@member_required()
def problem(request: MemberRequest, problem: int) -> HttpResponse:
    """Both sides' answers to one problem; without two sides there is nothing to lay side by side."""
    one = find_problem(problem)
    try:
        a, b = Name.of(request.GET.get("a", ""), field="a"), Name.of(request.GET.get("b", ""), field="b")
    except InvalidInput:
        return redirect("console:compare", request.member.project.slug)
    found = side_by_side(one, a, b)
    return render(
        request,
        "compare/problem.html",
        {
            "a": a,
            "b": b,
            "found": found,
            "first_a": found.a[0] if found.a else None,
            "first_b": found.b[0] if found.b else None,
            "judged": reads.judged(problem, a, b),
            "back": f"{_page(request)}?{urlencode({'a': a.text, 'b': b.text})}",
        },
    )


def _choices(asked: dict[str, str]) -> dict[str, Any]:
    return {"suggestions": reads.suggestions(), "num_runs": reads.num_runs(), "half": any(asked.values())}


def _compared(request: MemberRequest, a: Name, b: Name, time_range: TimeRange) -> dict[str, Any]:
    found, unmatched = reads.measured(a, b)
    change, part = request.GET.get("change", ""), request.GET.get("slice", "")
    shown = reads.problems(found, change=change if change in list(Change) else "", slice=part)
    spent = ledger(time_range.start, time_range.end)
    sides = reads.taken(a, spent), reads.taken(b, spent)
    page = Paginator(shown.rows, PAGE).get_page(request.GET.get("page"))
    return {
        "a": a,
        "b": b,
        "is_same": a == b,
        "measured": [{"found": one, "figure": _forest(request, one, a, b)} for one in found],
        "unmatched": unmatched,
        "shown": shown,
        "changes": [(one.value, shown.counts.get(one.value, 0)) for one in Change],
        "change": change,
        "slice": part,
        "page": page,
        "rows": reads.costed(list(page), sides),
        "votes": reads.votes(a, b, since=time_range.start, until=time_range.end),
        "lived": reads.lived(a, b, since=time_range.start, until=time_range.end),
        "taken": sides,
        "has_device_price": spent.has_device_price,
        "swapped": f"{_page(request)}?{urlencode({'a': b.text, 'b': a.text} | time_range.query)}",
    }


def _forest(request: MemberRequest, one: reads.Measured, a: Name, b: Name) -> dict[str, Any] | None:
    here = _page(request)
    return forest(
        [
            ForestRow(
                name=row.slice,
                value=row.difference.mean if row.difference else None,
                low=row.interval.low if row.interval else None,
                high=row.interval.high if row.interval else None,
                n=row.num_common,
                interval=row.interval.kind if row.interval else "",
                url=f"{here}?{urlencode({'a': a.text, 'b': b.text, 'slice': _slice(row.slice)})}#problems",
                is_head=row.slice == "all",
            )
            for row in one.effects.rows
        ],
        title=f"{b} − {a}, points",
    )


def _slice(name: str) -> str:
    return "" if name == "all" else name


def _page(request: MemberRequest) -> str:
    return reverse("console:compare", args=[request.member.project.slug])
