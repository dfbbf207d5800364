"""What came of everything received, over time."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from console.charts.colours import OTHER_COLOUR
from console.charts.drawing import Mark, mark_lines, plain_json

OUTCOME_COLOURS = {  # stored, harmless, refused
    "accepted": "#009E73",
    "duplicate": "#56B4E9",
    "invalid": "#D55E00",
    "conflict": "#CC79A7",
    "expired": "#E69F00",
    "rate_limited": "#0072B2",
}


def received(
    times: Sequence[datetime],
    by_outcome: Mapping[str, Sequence[int]],
    *,
    period: str,
    marks: Sequence[Mark] = (),
) -> dict[str, Any] | None:
    """Stacked bars of items by outcome, each of a `period` from its time on; None when nothing was received."""
    if not any(any(series) for series in by_outcome.values()):
        return None
    bars = [
        {
            "type": "bar",
            "x": list(times),
            "y": list(series),
            "name": outcome.replace("_", " "),
            "marker": {"color": OUTCOME_COLOURS.get(outcome, OTHER_COLOUR), "line": {"width": 0}},
            "hovertemplate": "%{y:,} " + outcome.replace("_", " ") + "<extra></extra>",
        }
        for outcome, series in by_outcome.items()
    ]
    layout = {
        "barmode": "stack",
        "bargap": 0.15,
        "hovermode": "x unified",
        "showlegend": True,
        "yaxis": {
            "title": {"text": f"items in {period}"},
            "rangemode": "tozero",
            "fixedrange": True,
        },
    }
    return plain_json(bars, layout | mark_lines(marks, times), is_time=True)
