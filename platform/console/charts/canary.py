"""A canary's confidence sequence over its looks: every band already holds at all times together."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from console.charts.colours import BAD_COLOUR, RULE_COLOUR, colour
from console.charts.drawing import plain_json


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """The difference of accept share, canary minus serving, in [-1, 1]; None where too little was known."""

    at: datetime
    value: float | None
    low: float | None
    high: float | None
    num_new: int
    num_old: int


def sequence(looks: Sequence[Look], *, version: int, margin: float) -> dict[str, Any] | None:
    """The difference with its band, 0 and minus the margin as lines; None before anything is known."""
    known = [look for look in looks if look.value is not None and look.low is not None and look.high is not None]
    if not known:
        return None
    times = [look.at for look in known]
    band: dict[str, Any] = {
        "type": "scatter",
        "x": [*times, *reversed(times)],
        "y": [100 * look.high for look in known] + [100 * look.low for look in reversed(known)],  # type: ignore[operator]
        "fill": "toself",
        "mode": "lines",
        "line": {"width": 0},
        "fillcolor": colour(version),
        "opacity": 0.16,
        "hoverinfo": "skip",
        "showlegend": False,
    }
    line: dict[str, Any] = {
        "type": "scatter",
        "x": times,
        "y": [100 * look.value for look in known],  # type: ignore[operator]
        "mode": "lines+markers",
        "line": {"color": colour(version), "width": 2},
        "marker": {"color": colour(version), "size": 6},
        "text": [
            f"{100 * look.value:+.1f} points, {100 * look.low:+.1f} to {100 * look.high:+.1f}"  # type: ignore[operator]
            f"<br>n = {look.num_new:,} users of the canary, {look.num_old:,} others"
            for look in known
        ],
        "hovertemplate": "%{text}<extra></extra>",
        "showlegend": False,
    }
    rules = [
        {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": style}
        for y, style in (
            (0, {"width": 1, "color": RULE_COLOUR}),
            (-100 * margin, {"width": 1.5, "dash": "dash", "color": BAD_COLOUR}),
        )
    ]
    title = f"points (dashed: margin {-100 * margin:+.0f})".replace("-", "−")
    layout = {"yaxis": {"title": {"text": title}}, "hovermode": "closest", "shapes": rules, "xaxis": {"tickangle": 0}}
    return plain_json([band, line], layout, is_time=True)
