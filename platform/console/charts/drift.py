"""Ratings that move with every result, over the number of results: drift, never a ranking."""

from collections.abc import Sequence
from typing import Any

from console.charts.colours import CHECKPOINT_COLOURS, OTHER_WIDTH, RULE_COLOUR
from console.charts.drawing import plain_json
from console.charts.forest import escaped

START = 1000.0
MAX_LABEL = 24


def drift_over_results(places: Sequence[int], ratings: dict[str, Sequence[float]]) -> dict[str, Any] | None:
    """One line a side, of at most as many as there are colours. None without a result."""
    if not places or not ratings:
        return None
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [0, *places],
            "y": [START, *values],
            "name": _short(name),
            "line": {"color": colour, "width": OTHER_WIDTH},
            "hovertemplate": f"<b>{escaped(name)}</b><br>%{{y:.0f}} after %{{x:,}} results<extra></extra>",
        }
        for (name, values), colour in zip(ratings.items(), CHECKPOINT_COLOURS, strict=False)
    ]
    layout = {
        "xaxis": {"title": {"text": "results so far"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": "Elo"}, "fixedrange": True},
        "shapes": [
            {
                "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": START, "y1": START,
                "line": {"width": 1, "color": RULE_COLOUR},
            }
        ],
        "hovermode": "closest",
        "showlegend": True,
    }  # fmt: skip
    return plain_json(traces, layout)


def _short(name: str) -> str:
    return escaped(name if len(name) <= MAX_LABEL else f"{name[: MAX_LABEL - 1]}…")
