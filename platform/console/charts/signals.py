"""Events over time."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from console.charts.colours import KIND_COLOURS, OTHER_COLOUR
from console.charts.drawing import Mark, mark_lines, plain_json


def rates(
    times: Sequence[datetime],
    counts: Mapping[str, Sequence[int]],
    *,
    bucket_minutes: float,
    marks: Sequence[Mark] = (),
    links: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any] | None:
    """Stacked bars of events a minute, one colour a kind, each leading to its link; None when there are none."""
    if not any(any(series) for series in counts.values()):
        return None
    bars = [
        {
            "type": "bar",
            "x": list(times),
            "y": [n / bucket_minutes for n in series],
            "name": kind,
            "marker": {"color": KIND_COLOURS.get(kind, OTHER_COLOUR), "line": {"width": 0}},
            "customdata": None if links is None else [{"url": url} for url in links[kind]],
            "text": [f"{n:,} {kind}" for n in series],
            "textposition": "none",
            "hovertemplate": "%{text}<extra></extra>",
        }
        for kind, series in counts.items()
    ]
    layout = {
        "barmode": "stack",
        "bargap": 0.15,
        "hovermode": "x unified",
        "showlegend": True,
        "yaxis": {"title": {"text": "signals / min"}, "rangemode": "tozero", "fixedrange": True},
    }
    return plain_json(bars, layout | mark_lines(marks, times), is_time=True, is_linked=links is not None)
