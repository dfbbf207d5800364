"""Shares over time, one line a checkpoint with its band."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from console.charts.colours import OTHER_WIDTH, SERVING_WIDTH, colour
from console.charts.drawing import Mark, mark_lines, plain_json

Trace = dict[str, Any]
FEW = 10  # turns; a point of fewer is drawn hollow, outside the line: too few to say
BAND = 0.16  # opacity


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One bucket of one checkpoint."""

    at: datetime
    value: float  # in [0, 1]
    low: float
    high: float
    n: int
    interval: str
    url: str  # of the rows it was counted from


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """The points of one checkpoint in order of time."""

    name: str
    version: int
    is_serving: bool
    points: Sequence[Point]


def shares_over_time(
    lines: Sequence[Line], times: Sequence[datetime], *, title: str, marks: Sequence[Mark] = ()
) -> dict[str, Any] | None:
    """`times` are the starts of all buckets; one without settled turns is a gap in the line. None without points."""
    if not any(line.points for line in lines):
        return None
    traces = [band for line in lines for band in _bands(line, times)]
    traces += [_line(line, times) for line in lines]
    traces += _few(lines)
    points = [point for line in lines for point in line.points]
    low = min(point.low if point.n >= FEW else point.value for point in points)
    high = max(point.high if point.n >= FEW else point.value for point in points)
    layout = {
        "yaxis": {
            "title": {"text": title},
            "range": [max(0.0, 100 * low - 4), min(100.0, 100 * high + 4)],
            "fixedrange": True,
        },
        "xaxis": {"range": [times[0], times[-1]] if len(times) > 1 else None, "tickangle": 0},
        "hovermode": "closest",
        "showlegend": len(traces) > 1,
    }
    return plain_json(traces, layout | mark_lines(marks, times), is_time=True, is_linked=True)


def _enough(line: Line, times: Sequence[datetime]) -> list[Point | None]:
    by_time = {point.at: point for point in line.points if point.n >= FEW}
    return [by_time.get(at) for at in times]


def _bands(line: Line, times: Sequence[datetime]) -> list[Trace]:
    """One closed shape for each run of neighbouring buckets, so that a gap stays a gap."""
    found: list[Trace] = []
    run: list[Point] = []
    for point in [*_enough(line, times), None]:
        if point is not None:
            run.append(point)
            continue
        if len(run) > 1:
            found.append(
                {
                    "type": "scatter",
                    "x": [one.at for one in run] + [one.at for one in reversed(run)],
                    "y": [100 * one.high for one in run] + [100 * one.low for one in reversed(run)],
                    "fill": "toself",
                    "fillcolor": _faint(colour(line.version)),
                    "line": {"width": 0},
                    "mode": "lines",
                    "hoverinfo": "skip",
                    "showlegend": False,
                    "legendgroup": line.name,
                }
            )
        run = []
    return found


def _line(line: Line, times: Sequence[datetime]) -> Trace:
    points = _enough(line, times)
    lone = [point if point and _is_alone(points, place) else None for place, point in enumerate(points)]
    return {
        "type": "scatter",
        "x": list(times),
        "y": [None if point is None else 100 * point.value for point in points],
        "name": f"{line.name}{' (serving)' if line.is_serving else ''}",
        "legendgroup": line.name,
        "mode": "lines+markers",
        "connectgaps": False,
        "line": {"color": colour(line.version), "width": SERVING_WIDTH if line.is_serving else OTHER_WIDTH},
        "marker": {"size": 6 if line.is_serving else 4, "color": colour(line.version)},
        "error_y": {  # a bucket without neighbours has no band; whiskers say as much
            "type": "data",
            "symmetric": False,
            "array": [100 * (point.high - point.value) if point else 0 for point in lone],
            "arrayminus": [100 * (point.value - point.low) if point else 0 for point in lone],
            "width": 4,
            "thickness": 1.5,
        },
        "customdata": [None if point is None else {"url": point.url} for point in points],
        "text": [None if point is None else _hover(line.name, point) for point in points],
        "hovertemplate": "%{text}<extra></extra>",
        "showlegend": True,
    }


def _is_alone(points: Sequence[Point | None], place: int) -> bool:
    return not any(points[max(0, place - 1) : place]) and not any(points[place + 1 : place + 2])


def _few(lines: Sequence[Line]) -> list[Trace]:
    few = [(line, point) for line in lines for point in line.points if point.n < FEW]
    if not few:
        return []
    colours = [colour(line.version) for line, _ in few]
    return [
        {
            "type": "scatter",
            "x": [point.at for _, point in few],
            "y": [100 * point.value for _, point in few],
            "mode": "markers",
            "name": f"fewer than {FEW} turns",
            "marker": {"symbol": "circle-open", "size": 6, "color": colours, "line": {"width": 1}},
            "customdata": [{"url": point.url} for _, point in few],
            "text": [f"{_hover(line.name, point)}<br>too few to say" for line, point in few],
            "hovertemplate": "%{text}<extra></extra>",
            "showlegend": True,
        }
    ]


def _hover(name: str, point: Point) -> str:
    return (
        f"<b>{name}</b><br>{100 * point.value:.1f} %, 95 % {point.interval} {100 * point.low:.1f} to "
        f"{100 * point.high:.1f} %<br>n = {point.n:,} settled turns"
    )


def _faint(hex_colour: str) -> str:
    red, green, blue = (int(hex_colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},{BAND})"
