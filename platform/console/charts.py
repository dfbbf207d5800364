"""Figures, made in Python and drawn by Plotly in the browser.

They carry data, hover texts and series colours; the frame's colours (text, grid, paper) come from the page's theme in
charts.js. Every estimate is drawn with its interval, every hover names n. What is missing is a gap, never a 0.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

# Okabe and Ito's set without black and yellow, which vanish on one of the two themes.
CHECKPOINT_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
KIND_COLOURS = {  # of signals; what is not named here is drawn in OTHER_COLOUR
    "shown": "#9aa3af",
    "accept": "#009E73",
    "copy": "#56B4E9",
    "edit": "#E69F00",
    "reject": "#D55E00",
    "retry": "#CC79A7",
    "undo": "#0072B2",
}
OTHER_COLOUR = "#6b7280"
STAGE_COLOURS = {
    "wait": "#8a8f98",
    "seal": "#56B4E9",
    "train": "#0072B2",
    "prove": "#009E73",
    "publish": "#E69F00",
    "swap": "#CC79A7",
}
SERVING_WIDTH, OTHER_WIDTH = 3.0, 1.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A promotion or rollback: a thin labelled line across a time chart."""

    at: datetime
    text: str


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


def colour(version: int) -> str:
    """The same checkpoint has the same colour on every chart."""
    return CHECKPOINT_COLOURS[version % len(CHECKPOINT_COLOURS)]


def rates(
    times: Sequence[datetime], counts: Mapping[str, Sequence[int]], *, bucket_minutes: float, marks: Sequence[Mark] = ()
) -> dict[str, Any] | None:
    """Stacked bars of events a minute, one colour a kind; None when there are none."""
    if not any(any(series) for series in counts.values()):
        return None
    go = _plotly()
    figure = go.Figure()
    for kind, series in counts.items():
        figure.add_bar(
            x=list(times),
            y=[n / bucket_minutes for n in series],
            name=kind,
            marker={"color": KIND_COLOURS.get(kind, OTHER_COLOUR), "line": {"width": 0}},
            customdata=list(series),
            hovertemplate="%{customdata} " + kind + "<extra></extra>",
        )
    figure.update_layout(barmode="stack", bargap=0.15, hovermode="x unified", showlegend=True)
    figure.update_yaxes(title_text="signals / min", rangemode="tozero")
    _mark(figure, marks, times)
    return _json(figure)


def shares(estimates: Sequence[Estimate], *, title: str) -> dict[str, Any] | None:
    """One point with whiskers a checkpoint, in order of version, n under each; None without any."""
    if not estimates:
        return None
    go = _plotly()
    figure = go.Figure()
    for estimate in estimates:
        x = f"{estimate.name}<br>n {estimate.n:,}"
        if estimate.value is None:
            figure.add_scatter(x=[x], y=[None], showlegend=False)
            continue
        figure.add_scatter(
            x=[x],
            y=[100 * estimate.value],
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [100 * (estimate.high - estimate.value)],
                "arrayminus": [100 * (estimate.value - estimate.low)],
                "thickness": SERVING_WIDTH if estimate.is_serving else OTHER_WIDTH,
                "width": 6,
            },
            mode="markers",
            marker={"color": colour(estimate.version), "size": 11 if estimate.is_serving else 8},
            showlegend=False,
            hovertemplate=(
                f"<b>{estimate.name}</b>{' (serving)' if estimate.is_serving else ''}<br>"
                f"{100 * estimate.value:.1f} %, 95 % {estimate.interval} {100 * estimate.low:.1f} to "
                f"{100 * estimate.high:.1f} %<br>n = {estimate.n:,} settled turns<extra></extra>"
            ),
        )
    low = min((e.low for e in estimates if e.value is not None), default=0.0)
    high = max((e.high for e in estimates if e.value is not None), default=1.0)
    figure.update_yaxes(title_text=title, range=[max(0, 100 * low - 8), min(100, 100 * high + 8)])
    figure.update_xaxes(type="category", range=[-0.5, len(estimates) - 0.5])
    figure.update_layout(hovermode="closest")
    return _json(figure)


def stages(names: Sequence[str], timings: Sequence[dict[str, float]]) -> dict[str, Any] | None:
    """Where the seconds of each round went, one bar a round; a stage without a time is left out."""
    if not any(timings):
        return None
    go = _plotly()
    figure = go.Figure()
    known = [stage for stage in STAGE_COLOURS if any(stage in timing for timing in timings)]
    other = sorted({stage for timing in timings for stage in timing} - set(STAGE_COLOURS) - {"total"})
    for stage in known + other:
        figure.add_bar(
            y=list(names),
            x=[timing.get(stage) for timing in timings],
            name=stage,
            orientation="h",
            marker={"color": STAGE_COLOURS.get(stage, "#8a8f98"), "line": {"width": 0}},
            hovertemplate=f"%{{y}}: {stage} %{{x:.3g}} s<extra></extra>",
        )
    figure.update_layout(barmode="stack", bargap=0.3, showlegend=True, hovermode="closest")
    figure.update_xaxes(title_text="seconds", rangemode="tozero")
    figure.update_yaxes(type="category", autorange="reversed")
    return _json(figure)


def curve(steps: Sequence[int], values: Sequence[float | None], *, name: str, version: int) -> dict[str, Any]:
    """One number of an update over its optimizer steps."""
    go = _plotly()
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
    return _json(figure)


def differences(rows: Sequence[tuple[str, float, float, float, int]], *, margin: float) -> dict[str, Any] | None:
    """A forest plot of (name, mean, lower, upper, n) in shares, with the margin as a line: right of it is proof."""
    if not rows:
        return None
    go = _plotly()
    figure = go.Figure()
    for name, mean, lower, upper, n in rows:
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
            marker={"color": "#009E73" if passes else "#D55E00", "size": 9, "symbol": "circle" if passes else "x"},
            showlegend=False,
            hovertemplate=(
                f"<b>{name}</b><br>{100 * mean:+.1f} points, bounds {100 * lower:+.1f} to {100 * upper:+.1f}"
                f"<br>n = {n} problems<extra></extra>"
            ),
        )
    figure.add_vline(x=-100 * margin, line={"width": 1.5, "dash": "dash", "color": "#D55E00"})
    figure.add_vline(x=0, line={"width": 1, "color": "#8a8f98"})
    figure.update_xaxes(title_text=f"points (dashed: margin {-100 * margin:+.0f})".replace("-", "−"))
    figure.update_yaxes(type="category", autorange="reversed")
    figure.update_layout(hovermode="closest")
    return _json(figure)


def _mark(figure: "Figure", marks: Sequence[Mark], times: Sequence[datetime]) -> None:
    span = (times[-1] - times[0]).total_seconds() or 1.0
    for mark in marks:
        place = (mark.at - times[0]).total_seconds() / span
        figure.add_shape(
            type="line", x0=mark.at, x1=mark.at, y0=0, y1=1, yref="paper", line={"width": 1, "color": "#8a8f98"}
        )
        figure.add_annotation(
            x=mark.at,
            y=1,
            yref="paper",
            yanchor="top",
            xanchor="left" if place < 0.5 else "right",
            text=mark.text,
            showarrow=False,
            font={"size": 11},
        )


def _plotly() -> Any:
    # Costs 0.2 s the first time: paid by the first chart, not by every process that imports the console's addresses.
    import plotly.graph_objects

    return plotly.graph_objects


def _json(figure: "Figure") -> dict[str, Any]:
    figure.update_layout(template="none", margin={"l": 48, "r": 12, "t": 20, "b": 36})
    plain: dict[str, Any] = json.loads(figure.to_json())
    plain["layout"].pop("template", None)
    return plain
