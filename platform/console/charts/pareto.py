"""Cost against quality, error bars on both, and the line of what nothing beats."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from console.charts.colours import OTHER_COLOUR, RULE_COLOUR, colour
from console.charts.drawing import plotly, to_json
from console.charts.forest import escaped
from evals.statistics.pareto import Point, frontier


@dataclass(frozen=True, kw_only=True, slots=True)
class Priced:
    """One checkpoint or model; costs in USD and above 0, since the axis is logarithmic."""

    name: str
    version: int | None  # its colour; None: an external model
    cost: float
    cost_low: float | None
    cost_high: float | None
    quality: float  # in [0, 1]
    quality_low: float
    quality_high: float
    n: int
    interval: str
    cost_interval: str  # the kind of the cost's, as `interval` is of the quality's
    url: str = ""
    is_serving: bool = False


def pareto(points: Sequence[Priced], *, cost_title: str, quality_title: str) -> dict[str, Any] | None:
    """None without points."""
    if not points:
        return None
    figure = plotly().Figure()
    best = frontier([Point(name=one.name, cost=one.cost, quality=one.quality) for one in points])
    figure.add_scatter(
        name="frontier",
        x=[point.cost for point in best],
        y=[100 * point.quality for point in best],
        mode="lines",
        line={"color": RULE_COLOUR, "width": 1.5, "dash": "dot", "shape": "hv"},
        hoverinfo="skip",
        showlegend=False,
    )
    on_line = {point.name for point in best}
    middle = math.sqrt(min(one.cost for one in points) * max(one.cost for one in points))
    for one in points:
        figure.add_scatter(
            name=one.name,
            x=[one.cost],
            y=[100 * one.quality],
            error_x=_bar(one.cost, one.cost_low, one.cost_high),
            error_y=_bar(100 * one.quality, 100 * one.quality_low, 100 * one.quality_high),
            mode="markers+text",
            text=[escaped(one.name[:24])],
            textposition="top left" if one.cost > middle else "top right",  # inside the frame at both ends
            textfont={"size": 11},
            cliponaxis=False,
            marker={
                "color": OTHER_COLOUR if one.version is None else colour(one.version),
                "size": 12 if one.is_serving else 9,
                "symbol": "circle" if one.name in on_line else "circle-open",
            },
            customdata=[one.url],
            showlegend=False,
            hovertemplate=_hover(one, is_best=one.name in on_line),
        )
    ticks = _ticks(points)
    figure.update_xaxes(
        type="log",
        title_text=cost_title,
        tickmode="array",
        tickvals=ticks,
        ticktext=[f"${_plain(tick)}" for tick in ticks],
    )
    figure.update_yaxes(title_text=quality_title)
    figure.update_layout(hovermode="closest")
    return to_json(figure, is_linked=any(one.url for one in points))


def _ticks(points: Sequence[Priced]) -> list[float]:
    """1, 2 and 5 of every decade that the points and their bars touch, and no more than a dozen."""
    least = min(one.cost_low or one.cost for one in points)
    most = max(one.cost_high or one.cost for one in points)
    decades = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    steps = (1, 2, 5) if len(decades) <= 4 else (1,)
    return [float(f"{step}e{decade}") for decade in decades for step in steps]


def _plain(tick: float) -> str:
    """.00002 rather than 2e-05."""
    return f"{tick:.12f}".rstrip("0").rstrip(".")


def _bar(value: float, low: float | None, high: float | None) -> dict[str, Any] | None:
    if low is None or high is None:
        return None
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - value],
        "arrayminus": [value - low],
        "thickness": 1.5,
        "width": 5,
    }


def _hover(one: Priced, *, is_best: bool) -> str:
    cost = f"${one.cost:.3g} a problem"
    if one.cost_low is not None and one.cost_high is not None:
        cost += f", 95 % {one.cost_interval} ${one.cost_low:.3g} to ${one.cost_high:.3g}"
    return (
        f"<b>{escaped(one.name)}</b>{' (serving)' if one.is_serving else ''}<br>{cost}<br>"
        f"{100 * one.quality:.1f} %, 95 % {one.interval} {100 * one.quality_low:.1f} to "
        f"{100 * one.quality_high:.1f} %<br>n = {one.n:,} problems"
        f"{'<br>nothing is both cheaper and better' if is_best else ''}<extra></extra>"
    )
