"""Compare any two checkpoints or models; `b` is the new side, differences are b - a."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from console.access import MemberRequest, member_required
from console.charts.forest import ForestRow, forest
from console.page_tables import PageTable, Rows
from console.reads import compare as reads
from console.timerange import TimeRange
from evals.comparing.answers import find_problem, side_by_side
from evals.comparing.effects import MIN_CASES, Effect
from evals.comparing.names import Name
from evals.comparing.problems import Answer, Change, Steadiness
from registry.errors import InvalidInput
from rl_online.spending.ledger import ledger

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
        a, b = _sides(request)
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
    found, unmatched, num_seen = reads.measured(a, b, is_without_seen=_is_without_seen(request))
    change, part, steadiness = _filter(request)
    shown = reads.problems(found, change=change, slice=part, steadiness=steadiness)
    spent = ledger(time_range.start, time_range.end)
    sides = reads.taken(a, spent), reads.taken(b, spent)
    page = Paginator(shown.rows, PAGE).get_page(request.GET.get("page"))
    return {
        "a": a,
        "b": b,
        "is_same": a == b,
        "measured": [{"found": one, "figure": _forest(request, one, a, b)} for one in found],
        "unmatched": unmatched,
        "num_seen": num_seen,
        "is_without_seen": _is_without_seen(request),
        "shown": shown,
        "changes": [(one.value, shown.counts.get(one.value, 0)) for one in Change],
        "change": change,
        "steadiness": steadiness,
        "kinds": list(Steadiness),
        "min_cases": MIN_CASES,
        "slice": part,
        "page": page,
        "rows": reads.costed(list(page), sides),
        "votes": reads.votes(a, b, since=time_range.start, until=time_range.end),
        "lived": reads.lived(a, b, since=time_range.start, until=time_range.end),
        "taken": sides,
        "has_device_price": spent.has_device_price,
        "tables": TABLES,
        "swapped": f"{_page(request)}?{urlencode({'a': b.text, 'b': a.text} | time_range.query)}",
    }


def _is_without_seen(request: HttpRequest) -> bool:
    """Whether problems that stand in a sealed batch are left out."""
    return request.GET.get("seen") == "out"


def _filter(request: HttpRequest) -> tuple[str, str, str]:
    """By change, by slice, and by steadiness; empty is everything."""
    change, steadiness = request.GET.get("change", ""), request.GET.get("steadiness", "")
    return (
        change if change in list(Change) else "",
        request.GET.get("slice", ""),
        steadiness if steadiness in list(Steadiness) else "",
    )


def _forest(request: MemberRequest, one: reads.Measured, a: Name, b: Name) -> dict[str, Any] | None:
    here = _page(request)
    return forest(
        [
            ForestRow(
                name=row.slice,
                value=row.difference.mean if row.difference and row.is_enough else None,
                low=row.interval.low if row.interval else None,
                high=row.interval.high if row.interval else None,
                n=row.num_common,
                interval=row.interval.kind if row.interval else "",
                url=f"{here}?{urlencode({'a': a.text, 'b': b.text, 'slice': _slice(row.slice)})}#problems",
                is_head=row.slice == "all",
                unknown=f"{row.num_common} in common, too few to say" if row.difference else "nothing in common",
            )
            for row in one.effects.rows
        ],
        title=f"{b} − {a}, points",
    )


def _slice(name: str) -> str:
    return "" if name == "all" else name


def _page(request: MemberRequest) -> str:
    return reverse("console:compare", args=[request.member.project.slug])


def _ask_problems(request: HttpRequest) -> Callable[[], Rows]:
    a, b = _sides(request)
    (change, part, steadiness), time_range = _filter(request), TimeRange.of(request, DEFAULT_RANGE)

    def rows() -> Rows:
        found, _, _ = reads.measured(a, b, is_without_seen=_is_without_seen(request))
        spent = ledger(time_range.start, time_range.end)
        shown = reads.problems(found, change=change, slice=part, steadiness=steadiness)
        costed = reads.costed(shown.rows, (reads.taken(a, spent), reads.taken(b, spent)))
        return [_exported(a, b, row) for row in costed]

    return rows


def _exported(a: Name, b: Name, row: reads.CostedPair) -> tuple[Any, ...]:
    one = row.problem
    return (
        a.text, b.text, one.benchmark, one.problem_id, one.change.value, *_answer(one.a), *_answer(one.b),
        one.difference, row.cost_a, row.cost_b, one.slices, one.steadiness,
        *(len(side.scored) if side else None for side in (one.a, one.b)),
    )  # fmt: skip


def _answer(answer: Answer | None) -> tuple[Any, ...]:
    """Status, score and latency; an unknown status is that of a problem the side was not asked."""
    return (None, None, None) if answer is None else (answer.status, answer.value, answer.latency_ms)


def _ask_slices(request: HttpRequest) -> Callable[[], Rows]:
    a, b = _sides(request)

    def rows() -> Rows:
        found, _, _ = reads.measured(a, b, is_without_seen=_is_without_seen(request))
        return [
            (
                a.text,
                b.text,
                effect.benchmark,
                effect.slice,
                *_difference(effect),
                effect.num_common,
                effect.num_asked,
                effect.mcnemar,
                effect.smallest_visible,
            )
            for one in found
            for effect in one.effects.rows
        ]

    return rows


def _difference(effect: Effect) -> tuple[Any, ...]:
    one, bounds = effect.difference, effect.interval
    if one is None or bounds is None:
        return (None,) * 11
    return (
        one.mean_old, one.mean_new, one.mean, one.se, one.clustered_se, bounds.low, bounds.high, bounds.kind,
        one.better, one.worse, one.equal,
    )  # fmt: skip


def _sides(request: HttpRequest) -> tuple[Name, Name]:
    """Raises InvalidInput."""
    return Name.of(request.GET.get("a", ""), field="a"), Name.of(request.GET.get("b", ""), field="b")


PROBLEM_COLUMNS = (
    "a", "b", "benchmark", "problem", "change", "a_status", "a_score", "a_latency_ms", "b_status", "b_score",
    "b_latency_ms", "difference", "a_usd", "b_usd", "slices", "steadiness", "a_tries", "b_tries",
)  # fmt: skip
SLICE_COLUMNS = (
    "a", "b", "benchmark", "slice", "a_mean", "b_mean", "difference", "se", "clustered_se", "low", "high",
    "interval", "better", "worse", "equal", "n_common", "n_asked", "mcnemar_p", "smallest_visible",
)  # fmt: skip
TABLES = (
    PageTable(
        name="compare",
        title="Problems",
        page="compare",
        columns=PROBLEM_COLUMNS,
        ask=_ask_problems,
    ),
    PageTable(
        name="compare-slices",
        title="Differences by slice",
        page="compare",
        columns=SLICE_COLUMNS,
        ask=_ask_slices,
    ),
)
