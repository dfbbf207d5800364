"""What every figure shares: the door to Plotly, marks across time, and the JSON that the browser draws.

Clicks: give a trace `customdata` whose last (or only) item is an address, or an object with `url`, and pass
`is_linked=True`; charts.js follows it. Times: pass `is_time=True` for figures over time, and dragging across them sets
the page's time range.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from console.charts.colours import RULE_COLOUR

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A promotion or rollback: a thin labelled line across a time chart."""

    at: datetime
    text: str


def plotly() -> Any:
    """`plotly.graph_objects`, loaded by the first figure."""
    # Costs 0.2 s the first time: paid by the first chart, not by every process that imports the console's addresses.
    import plotly.graph_objects

    return plotly.graph_objects


def to_json(figure: "Figure", *, is_time: bool = False, is_linked: bool = False) -> dict[str, Any]:
    """`layout.meta` tells charts.js whether a drag sets the time range and whether points lead somewhere."""
    figure.update_layout(
        template="none",
        margin={"l": 48, "r": 12, "t": 20, "b": 36},
        meta={"is_time": is_time, "is_linked": is_linked},
        dragmode="zoom" if is_time else False,
    )
    plain: dict[str, Any] = json.loads(figure.to_json())
    plain["layout"].pop("template", None)
    return plain


def plain_json(
    traces: Sequence[dict[str, Any]], layout: dict[str, Any], *, is_time: bool = False, is_linked: bool = False
) -> dict[str, Any]:
    """As `to_json`, for figures written as Plotly's own JSON: building its objects costs 10 ms a trace.

    Times are aware datetimes; they are drawn on their own clock.
    """
    frame = {
        "margin": {"l": 48, "r": 12, "t": 20, "b": 36},
        "meta": {"is_time": is_time, "is_linked": is_linked},
        "dragmode": "zoom" if is_time else False,
    }
    return {"data": _plain(traces), "layout": _plain(frame | layout)}


def mark_lines(marks: Sequence[Mark], times: Sequence[datetime]) -> dict[str, Any]:
    """The shapes and annotations of a layout: a label turns inward near the right edge; without words it is a line."""
    span = (times[-1] - times[0]).total_seconds() or 1.0
    lines, words = [], []
    for mark in marks:
        is_left = (mark.at - times[0]).total_seconds() / span < 0.5
        rule = {"width": 1, "color": RULE_COLOUR}
        lines.append({"type": "line", "x0": mark.at, "x1": mark.at, "y0": 0, "y1": 1, "yref": "paper", "line": rule})
        if mark.text:
            words.append(
                {
                    "x": mark.at, "y": 1, "yref": "paper", "yanchor": "top", "xanchor": "left" if is_left else "right",
                    "text": mark.text, "showarrow": False, "font": {"size": 11},
                }
            )  # fmt: skip
    return {"shapes": lines, "annotations": words}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value
