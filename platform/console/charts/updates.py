"""One update: where its time went, and its numbers over the optimizer steps."""

from collections.abc import Sequence
from typing import Any

from console.charts.colours import RULE_COLOUR, STAGE_COLOURS, colour
from console.charts.drawing import plotly, to_json


def stages(names: Sequence[str], timings: Sequence[dict[str, float]]) -> dict[str, Any] | None:
    """Where the seconds of each round went, one bar a round; a stage without a time is left out."""
    if not any(timings):
        return None
    go = plotly()
    figure = go.Figure()
    known = [stage for stage in STAGE_COLOURS if any(stage in timing for timing in timings)]
    other = sorted({stage for timing in timings for stage in timing} - set(STAGE_COLOURS) - {"total"})
    for stage in known + other:
        figure.add_bar(
            y=list(names),
            x=[timing.get(stage) for timing in timings],
            name=stage,
            orientation="h",
            marker={"color": STAGE_COLOURS.get(stage, RULE_COLOUR), "line": {"width": 0}},
            hovertemplate=f"%{{y}}: {stage} %{{x:.3g}} s<extra></extra>",
        )
    figure.update_layout(barmode="stack", bargap=0.3, showlegend=True, hovermode="closest")
    figure.update_xaxes(title_text="seconds", rangemode="tozero")
    figure.update_yaxes(type="category", autorange="reversed")
    return to_json(figure)


def curve(steps: Sequence[int], values: Sequence[float | None], *, name: str, version: int) -> dict[str, Any]:
    """One number of an update over its optimizer steps."""
    go = plotly()
    figure = go.Figure()
    figure.add_scatter(
        x=list(steps),
        y=list(values),
        mode="lines+markers" if len(steps) < 40 else "lines",
        line={"color": colour(version), "width": 2},
        marker={"size": 5},
        showlegend=False,
        hovertemplate=f"step %{{x}}: {name} %{{y:.4g}}<extra></extra>",
    )
    figure.update_xaxes(title_text="optimizer step", rangemode="tozero", tickformat="d")
    figure.update_layout(hovermode="x")
    return to_json(figure)
