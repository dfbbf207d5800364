"""Win rates: who beats whom by judges and by people, and how strong each is."""

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from console.access import MemberRequest, member_required
from console.charts.forest import ForestRow, forest
from console.charts.matrix import Cell, matrix
from console.page_tables import PageTable, Rows
from console.reads import win_rates as reads
from console.timerange import TimeRange
from evals.judge_record import JudgeRecord, records
from evals.standings import MIN_DECIDED, Standings, Vote, standings, votes_of_judge
from evals.statistics.bradley_terry import Strength
from evals.statistics.wins import WinRate

DEFAULT_RANGE = "90d"
TABS = ("judges", "people")


@require_safe
@member_required()
def win_rates(request: MemberRequest) -> HttpResponse:
    time_range = TimeRange.of(request, DEFAULT_RANGE)
    by = _by(request)
    context = _by_people(time_range) if by == "people" else _by_judge(request.GET.get("judge", ""), time_range)
    found = standings(context.pop("votes"))
    figures = {
        "matrix_figure": matrix(found.names, _cells(request, found, time_range)),
        "ranking_figure": _ranking(request, found),
    }
    frame = {
        "time_range": time_range,
        "by": by,
        "tabs": TABS,
        "found": found,
        "rows": _rows(found),
        "pairs": _pairs(found),
        "min_decided": MIN_DECIDED,
        "tables": TABLES,
    }
    return render(request, "win_rates/win_rates.html", frame | figures | context)


def _by(request: HttpRequest) -> str:
    by = request.GET.get("by", "judges")
    return by if by in TABS else "judges"


def _by_judge(asked: str, time_range: TimeRange) -> dict[str, Any]:
    choices = reads.judges(since=time_range.start, until=time_range.end)
    chosen = next((one for one in choices if str(one.judge.pk) == asked), choices[0] if choices else None)
    votes: Sequence[Vote] = []
    record: JudgeRecord | None = None
    if chosen is not None:
        votes = votes_of_judge(chosen.judge, since=time_range.start, until=time_range.end)
        record = records([chosen.judge], since=time_range.start, until=time_range.end)[0]
    return {"choices": choices, "chosen": chosen, "record": record, "votes": votes}


def _by_people(time_range: TimeRange) -> dict[str, Any]:
    people = reads.people(since=time_range.start, until=time_range.end)
    return {"people": people, "votes": people.votes}


def _rows(found: Standings) -> list[dict[str, Any]]:
    """One for each side, in the ranking's order where there is one."""
    ranking = found.with_ridge if found.ranking.undefined else found.ranking
    strengths = {row.name: row for row in ranking.rows}
    names = [row.name for row in ranking.rows] or list(found.names)
    return [{"name": name, "rate": found.overall[name], "strength": strengths.get(name)} for name in names]


def _pairs(found: Standings) -> list[dict[str, Any]]:
    """Every pair that met, once, the better side first."""
    pairs = [
        {"left": left, "right": right, "rate": rate, "is_enough": rate.n >= MIN_DECIDED}
        for (left, right), rate in found.cells.items()
        if (rate.rate or 0.0, right) >= (1 - (rate.rate or 0.0), left)
    ]
    return sorted(pairs, key=lambda pair: (-pair["rate"].n, pair["left"], pair["right"]))


def _cells(request: MemberRequest, found: Standings, time_range: TimeRange) -> dict[tuple[str, str], Cell]:
    here = reverse("console:compare", args=[request.member.project.slug])
    return {
        (row, column): Cell(
            rate=rate.rate if rate.n >= MIN_DECIDED else None,
            low=rate.low,
            high=rate.high,
            n=rate.n,
            interval=rate.interval,
            url=f"{here}?{urlencode({'a': column, 'b': row} | time_range.query)}#votes",
        )
        for (row, column), rate in found.cells.items()
    }


def _ranking(request: MemberRequest, found: Standings) -> dict[str, Any] | None:
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
            for row in found.ranking.rows
        ],
        title="strength on the Elo scale; 1,000 is the mean",
        scale=1.0,
        line_at=1000.0,
        is_signed=False,
    )


def _ask(request: HttpRequest, rows_of: Callable[[Standings, str], Rows]) -> Callable[[], Rows]:
    time_range, by, judge = TimeRange.of(request, DEFAULT_RANGE), _by(request), request.GET.get("judge", "")

    def rows() -> Rows:
        context = _by_people(time_range) if by == "people" else _by_judge(judge, time_range)
        chosen = context.get("chosen")
        return rows_of(standings(context["votes"]), str(chosen.judge) if chosen else by)

    return rows


def _ranking_rows(found: Standings, by: str) -> Rows:
    ridge = found.with_ridge.ridge if found.ranking.undefined else found.ranking.ridge
    return [
        (by, place, row["name"], *_elo(row["strength"]), ridge, *_rate(row["rate"]))
        for place, row in enumerate(_rows(found), start=1)
    ]


def _pair_rows(found: Standings, by: str) -> Rows:
    return [(by, pair["left"], pair["right"], *_rate(pair["rate"])) for pair in _pairs(found)]


def _elo(strength: Strength | None) -> tuple[float | None, ...]:
    return (strength.elo, strength.elo_low, strength.elo_high) if strength else (None, None, None)


def _rate(rate: WinRate) -> tuple[Any, ...]:
    return rate.rate, rate.low, rate.high, rate.interval, rate.wins, rate.ties, rate.losses, rate.n, rate.undecided


RATE = ("win_rate", "low", "high", "interval", "wins", "ties", "losses", "decided", "undecided")
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
        columns=("by", "place", "side", "elo", "elo_low", "elo_high", "ridge", *RATE),
        ask=lambda request: _ask(request, _ranking_rows),
    ),
)
