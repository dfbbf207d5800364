"""Estimates with their intervals: shares by checkpoint, and the forest plot of paired differences."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from console.charts.colours import BAD_COLOUR, GOOD_COLOUR, OTHER_WIDTH, RULE_COLOUR, SERVING_WIDTH, colour
from console.charts.drawing import plain_json, plotly, to_json


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A share with its interval. `value` None is drawn as a hollow bar over the interval: nothing is known."""

    name: str
    version: int
    value: float | None
    low: float
    high: float
    n: int
    interval: str
    is_serving: bool


def shares(estimates: Sequence[Estimate], *, title: str) -> dict[str, Any] | None:
    """One point with whiskers a checkpoint, in order of version, n under each; None without any."""
    if not estimates:
        return None
    known = [one for one in estimates if one.value is not None]
    low, high = min((one.low for one in known), default=0.0), max((one.high for one in known), default=1.0)
    layout = {
        "yaxis": {"title": {"text": title}, "range": [max(0, 100 * low - 8), min(100, 100 * high + 8)]},
        "xaxis": {"type": "category", "range": [-0.5, len(estimates) - 0.5]},
        "hovermode": "closest",
    }
    return plain_json([_share(one) for one in estimates], layout)


def _share(estimate: Estimate) -> dict[str, Any]:
    trace: dict[str, Any] = {"type": "scatter", "x": [f"{estimate.name}<br>n {estimate.n:,}"], "showlegend": False}
    if estimate.value is None:
        return trace | {"y": [None]}
    return trace | {
        "y": [100 * estimate.value],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [100 * (estimate.high - estimate.value)],
            "arrayminus": [100 * (estimate.value - estimate.low)],
            "thickness": SERVING_WIDTH if estimate.is_serving else OTHER_WIDTH,
            "width": 6,
        },
        "mode": "markers",
        "marker": {"color": colour(estimate.version), "size": 11 if estimate.is_serving else 8},
        "hovertemplate": (
            f"<b>{estimate.name}</b>{' (serving)' if estimate.is_serving else ''}<br>"
            f"{100 * estimate.value:.1f} %, 95 % {estimate.interval} {100 * estimate.low:.1f} to "
            f"{100 * estimate.high:.1f} %<br>n = {estimate.n:,} settled turns<extra></extra>"
        ),
    }


def differences(rows: Sequence[tuple[str, float, float, float, int, float]]) -> dict[str, Any] | None:
    """A forest plot of (name, mean, lower, upper, n, margin) in shares; a row wholly right of its margin is proof."""
    if not rows:
        return None
    go = plotly()
    figure = go.Figure()
    for name, mean, lower, upper, n, margin in rows:
        passes = lower > -margin
        figure.add_scatter(
            y=[name],
            x=[100 * mean],
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [100 * (upper - mean)],
                "arrayminus": [100 * (mean - lower)],
                "thickness": 2,
                "width": 6,
            },
            mode="markers",
            marker={"color": GOOD_COLOUR if passes else BAD_COLOUR, "size": 9, "symbol": "circle" if passes else "x"},
            showlegend=False,
            hovertemplate=(
                f"<b>{name}</b><br>{100 * mean:+.1f} points, bounds {100 * lower:+.1f} to {100 * upper:+.1f}"
                f"<br>n = {n} problems<extra></extra>"
            ),
        )
    margins = {margin for *_, margin in rows}
    if len(margins) == 1:
        figure.add_vline(x=-100 * rows[0][-1], line={"width": 1.5, "dash": "dash", "color": BAD_COLOUR})
        figure.update_xaxes(title_text=f"points (dashed: margin {-100 * rows[0][-1]:+.0f})".replace("-", "−"))
    else:
        figure.add_scatter(
            x=[-100 * margin for *_, margin in rows],
            y=[name for name, *_ in rows],
            mode="markers",
            marker={"symbol": "line-ns-open", "size": 16, "color": BAD_COLOUR, "line": {"width": 2}},
            showlegend=False,
            hovertemplate="margin %{x:+.1f} points<extra></extra>",
        )
        figure.update_xaxes(title_text="points (upright strokes: the margin of each)")
    figure.add_vline(x=0, line={"width": 1, "color": RULE_COLOUR})
    figure.update_yaxes(type="category", autorange="reversed")
    figure.update_layout(hovermode="closest")
    return to_json(figure)
