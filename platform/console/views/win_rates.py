"""Win rates: who beats whom by judges, by people and in imported votes, and how strong each is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console.access import MemberRequest, carry_out, member_required
from console.charts.drift import drift_over_results
from console.charts.forest import ForestRow, forest
from console.charts.matrix import Cell, matrix
from console.page_tables import PageTable, Rows
from console.query import written
from console.reads import win_rates as reads
from console.timerange import MAX_SPAN, TimeRange
from evals.judge_record import records
from evals.models import ImportedStandings
from evals.services.imported_standings import request_all_standings
from evals.standings import MIN_DECIDED, Standings, standings, votes_of_judge
from evals.statistics.bradley_terry import Strength
from evals.statistics.estimate import Estimate
from evals.statistics.wins import WinRate
from registry.models import Role

DEFAULT_RANGE = "90d"
TABS = ("judges", "people", "imported")
PAGE = 50  # pairs
IN_MATRIX, IN_FOREST, IN_DRIFT = 16, 40, 6  # sides drawn; all are in the tables


@dataclass(frozen=True, kw_only=True)
class Source:
    """Whose votes are shown, and what they come to."""

    found: Standings
    label: str  # in exports
    terms: str = ""  # of the list of comparisons
    span: Mapping[str, str] = field(default_factory=dict)  # and its time range
    imported: reads.Imported | None = None
    context: Mapping[str, Any] = field(default_factory=dict)  # for the template


@require_safe
@member_required()
def win_rates(request: MemberRequest) -> HttpResponse:
    time_range, by = TimeRange.of(request, DEFAULT_RANGE), _by(request)
    source = SOURCES[by](request, time_range)
    found = source.found
    here = reverse("console:comparisons", args=[request.member.project.slug])

    def battles(*names: str) -> str:
        terms = " ".join([source.terms, *(written("side", name) for name in names)])
        return f"{here}?{urlencode({'q': terms, **source.span})}"

    rows, pairs = _rows(source), Paginator(found.pairs, PAGE).get_page(request.GET.get("page"))
    frame = {
        "time_range": time_range,
        "by": by,
        "tabs": TABS,
        "found": found,
        "imported": source.imported,
        "rows": [row | {"battles": battles(row["name"])} for row in rows],
        "page": pairs,
        "pairs": [
            {"pair": pair, "battles": battles(pair.name, pair.other), "is_enough": pair.rate.n >= MIN_DECIDED}
            for pair in pairs
        ],
        "all_battles": battles(),
        "min_decided": MIN_DECIDED,
        "tables": TABLES,
        "matrix_figure": _matrix(found, battles),
        "ranking_figure": _ranking(found),
        "drift_figure": _drift(found),
        "num_drawn": {"matrix": IN_MATRIX, "ranking": IN_FOREST, "drift": IN_DRIFT},
    }
    return render(request, "win_rates/win_rates.html", frame | dict(source.context))


@require_POST
@member_required(Role.ENGINEER)
def compute_imported(request: MemberRequest) -> HttpResponse:
    def act() -> str:
        num = request_all_standings()
        return f"A worker looks through the imported votes on {num} benchmark{'' if num == 1 else 's'}."

    back = reverse("console:win-rates", args=[request.member.project.slug])
    return carry_out(request, act, back=f"{back}?by=imported")


def _by(request: HttpRequest) -> str:
    by = request.GET.get("by", "judges")
    return by if by in TABS else "judges"


def _by_judge(request: HttpRequest, time_range: TimeRange) -> Source:
    asked, since, until = request.GET.get("judge", ""), time_range.start, time_range.end
    choices = reads.judges(since=since, until=until)
    chosen = next((one for one in choices if str(one.judge.pk) == asked), choices[0] if choices else None)
    context: dict[str, Any] = {"choices": choices, "chosen": chosen, "record": None}
    if chosen is None:
        return Source(found=standings([]), label="judges", context=context)
    context["record"] = records([chosen.judge], since=since, until=until)[0]
    return Source(
        found=standings(votes_of_judge(chosen.judge, since=since, until=until)),
        label=str(chosen.judge),
        terms=f"by:judge judge_version:{chosen.judge.pk}",
        span=time_range.query,
        context=context,
    )


def _by_people(request: HttpRequest, time_range: TimeRange) -> Source:
    people = reads.people(since=time_range.start, until=time_range.end)
    return Source(
        found=standings(people.votes),
        label="people",
        terms="by:person made:here",
        span=time_range.query,
        context={"people": people},
    )


def _by_imported(request: HttpRequest, time_range: TimeRange) -> Source:
    choices = reads.imported_choices()
    chosen = reads.chosen_of(choices, source=request.GET.get("source", ""), set=request.GET.get("set", ""))
    context: dict[str, Any] = {"sources": choices, "source": chosen}
    if chosen is None:
        context |= {"num_files": reads.num_imported_files(), "is_computing": reads.is_computing()}
        return Source(found=standings([]), label="imported", context=context)
    shown = reads.imported(chosen)
    style, equal = shown.measured.style, shown.measured.at_equal_length
    num_styled = style.n if style else sum(one.raw.n for one in equal)
    context |= {"style": list(style.style.items()) if style else [], "num_styled": num_styled}
    if equal:
        context |= {"baseline": equal[0].baseline, "baseline_label": equal[0].label}
    return Source(
        found=shown.measured.standings,
        label=str(chosen),
        terms=_terms(chosen),
        span=_span(shown, time_range),
        imported=shown,
        context=context,
    )


SOURCES: Mapping[str, Callable[[HttpRequest, TimeRange], Source]] = {
    "judges": _by_judge,
    "people": _by_people,
    "imported": _by_imported,
}


def _terms(row: ImportedStandings) -> str:
    """The comparisons it was computed from, as a query of their list."""
    if row.set_id is not None:
        return f"by:{row.by} {written('file', str(row.set_id))}"
    rater = [written("rater", row.rater)] if row.rater else []
    return " ".join(["by:judge made:elsewhere", *rater, written("benchmark", str(row.benchmark))])


def _span(shown: reads.Imported, time_range: TimeRange) -> dict[str, str]:
    """When they came in: what the list goes by."""
    first, last = shown.came_in
    last += timedelta(seconds=1)
    first = max(first - timedelta(seconds=1), last - MAX_SPAN)
    return TimeRange(start=first, end=last, preset=None, zone=time_range.zone).query


def _rows(source: Source) -> list[dict[str, Any]]:
    """One for each side, in the ranking's order where there is one."""
    found = source.found
    ranking = found.with_ridge if found.ranking.undefined else found.ranking
    strengths = {row.name: row for row in ranking.rows}
    names = [row.name for row in ranking.rows]
    names += [name for name in found.names if name not in strengths]  # those without a decided comparison
    styled = source.imported.measured.style if source.imported else None
    equal = {one.name: one for one in source.imported.measured.at_equal_length} if source.imported else {}
    return [
        {
            "name": name,
            "rate": found.overall[name],
            "strength": strengths.get(name),
            "styled": styled.strengths.get(name) if styled else None,
            "equal": equal.get(name),
        }
        for name in names
    ]


def _matrix(found: Standings, battles: Callable[..., str]) -> dict[str, Any] | None:
    """Of the sides with most comparisons, best first."""
    most = sorted(found.names, key=lambda name: (-found.overall[name].n, name))[:IN_MATRIX]
    names = [name for name in found.names if name in most]
    cells = {pair: rate for pair, rate in found.cells.items() if pair[0] in most and pair[1] in most}
    return matrix(
        names,
        {
            (row, column): Cell(
                rate=rate.rate if rate.n >= MIN_DECIDED else None,
                low=rate.low,
                high=rate.high,
                n=rate.n,
                ties=rate.ties,
                interval=rate.interval,
                url=battles(row, column),
            )
            for (row, column), rate in cells.items()
        },
    )


def _ranking(found: Standings) -> dict[str, Any] | None:
    if found.ranking.undefined:
        return None
    return forest(
        [
            ForestRow(
                name=row.name,
                value=row.elo,
                low=row.elo_low,
                high=row.elo_high,
                n=row.num_games,
                interval=f"{found.ranking.interval}, clustered by problem or user",
                of="decided comparisons",
            )
            for row in found.ranking.rows[:IN_FOREST]
        ],
        title="Elo scale; 1,000 is the mean",
        scale=1.0,
        line_at=1000.0,
        is_signed=False,
    )


def _drift(found: Standings) -> dict[str, Any] | None:
    most = sorted(found.drift.ratings, key=lambda name: (-found.overall[name].n, name))[:IN_DRIFT]
    return drift_over_results(found.drift.places, {name: found.drift.ratings[name] for name in sorted(most)})


# --- as files ---


def _ask(request: HttpRequest, rows_of: Callable[[Source], Rows]) -> Callable[[], Rows]:
    time_range, by = TimeRange.of(request, DEFAULT_RANGE), _by(request)
    return lambda: rows_of(SOURCES[by](request, time_range))


def _ranking_rows(source: Source) -> Rows:
    found = source.found
    ridge = found.with_ridge.ridge if found.ranking.undefined else found.ranking.ridge
    return [
        (
            source.label, place, row["name"], *_elo(row["strength"]), ridge, *_rate(row["rate"]),
            *_bounds(row["styled"]), *_bounds(row["equal"].controlled if row["equal"] else None),
        )
        for place, row in enumerate(_rows(source), start=1)
    ]  # fmt: skip


def _pair_rows(source: Source) -> Rows:
    return [(source.label, pair.name, pair.other, *_rate(pair.rate)) for pair in source.found.pairs]


def _elo(strength: Strength | None) -> tuple[float | None, ...]:
    return (strength.elo, strength.elo_low, strength.elo_high) if strength else (None, None, None)


def _bounds(one: Estimate | None) -> tuple[float | None, ...]:
    return (one.value, one.low, one.high) if one else (None, None, None)


def _rate(rate: WinRate) -> Sequence[Any]:
    return rate.rate, rate.low, rate.high, rate.interval, rate.wins, rate.ties, rate.losses, rate.n, rate.undecided


RATE = ("win_rate", "low", "high", "interval", "wins", "ties", "losses", "decided", "undecided")
CONTROLLED = (
    *(f"elo_without_style{part}" for part in ("", "_low", "_high")),
    *(f"win_rate_at_equal_length{part}" for part in ("", "_low", "_high")),
)
TABLES = (
    PageTable(
        name="win-rates",
        title="Pairs",
        page="win-rates",
        columns=("by", "side", "over", *RATE),
        ask=lambda request: _ask(request, _pair_rows),
    ),
    PageTable(
        name="ranking",
        title="Ranking",
        page="win-rates",
        columns=("by", "place", "side", "elo", "elo_low", "elo_high", "ridge", *RATE, *CONTROLLED),
        ask=lambda request: _ask(request, _ranking_rows),
    ),
)
