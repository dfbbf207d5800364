"""One update: where its time went, and its numbers over the optimizer steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from console.charts.colours import RULE_COLOUR, STAGE_COLOURS, colour
from console.charts.drawing import plain_json, plotly, to_json

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def stages(names: Sequence[str], timings: Sequence[dict[str, float]]) -> dict[str, Any] | None:
    """Where the seconds of each round went, one bar a round; a stage without a time is left out."""
    if not any(timings):
        return None
    known = [stage for stage in STAGE_COLOURS if any(stage in timing for timing in timings)]
    other = sorted({stage for timing in timings for stage in timing} - set(STAGE_COLOURS) - {"total"})
    bars = [
        {
            "type": "bar",
            "y": list(names),
            "x": [timing.get(stage) for timing in timings],
            "name": stage,
            "orientation": "h",
            "marker": {"color": STAGE_COLOURS.get(stage, RULE_COLOUR), "line": {"width": 0}},
            "hovertemplate": f"%{{y}}: {stage} %{{x:.3g}} s<extra></extra>",
        }
        for stage in known + other
    ]
    layout = {
        "barmode": "stack",
        "bargap": 0.3,
        "showlegend": True,
        "hovermode": "closest",
        "xaxis": {"title": {"text": "seconds"}, "rangemode": "tozero"},
        "yaxis": {"type": "category", "autorange": "reversed"},
    }
    return plain_json(bars, layout)


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One line of an overlay."""

    label: str
    version: int
    steps: Sequence[int]
    values: Sequence[float | None]


def curve(
    steps: Sequence[int],
    values: Sequence[float | None],
    *,
    name: str,
    version: int,
    heldout: Sequence[float | None] | None = None,
) -> dict[str, Any]:
    """One number of an update over its optimizer steps; dashed, the same on samples that are never trained on."""
    go = plotly()
    figure = go.Figure()
    lines = [("trained on", values, "solid"), ("held out", heldout, "dash")]
    for label, points, dash in lines:
        if points is None:
            continue
        figure.add_scatter(
            x=list(steps),
            y=list(points),
            mode="lines+markers" if len(steps) < 40 else "lines",
            line={"color": colour(version), "width": 2, "dash": dash},
            marker={"size": 5, "symbol": "circle" if dash == "solid" else "circle-open"},
            name=label,
            showlegend=heldout is not None,
            connectgaps=True,  # not every step looks at what is set aside, or holds each language
            hovertemplate=f"step %{{x}}: {name} %{{y:.4g}}, {label}<extra></extra>",
        )
    figure.update_layout(showlegend=heldout is not None)
    return _over_steps(figure)


def overlay(series: Sequence[Series], *, name: str) -> dict[str, Any] | None:
    """The same number of several updates, each in the colour of its checkpoint; None without a point."""
    if not any(value is not None for one in series for value in one.values):
        return None
    go = plotly()
    figure = go.Figure()
    for index, one in enumerate(series):
        figure.add_scatter(
            x=list(one.steps),
            y=list(one.values),
            mode="lines+markers" if len(one.steps) < 40 else "lines",
            line={"color": colour(one.version), "width": 2, "dash": "solid" if index == 0 else "dash"},
            marker={"size": 5},
            name=one.label,
            showlegend=True,
            hovertemplate=f"{one.label}, step %{{x}}: {name} %{{y:.4g}}<extra></extra>",
        )
    figure.update_layout(showlegend=True)
    return _over_steps(figure)


def _over_steps(figure: "Figure") -> dict[str, Any]:
    figure.update_xaxes(title_text="optimizer step", rangemode="tozero", tickformat="d")
    figure.update_layout(hovermode="x")
    return to_json(figure)
