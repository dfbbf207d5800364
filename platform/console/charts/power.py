"""How likely a comparison finds a true difference, against that difference: one curve for each suite, at its n."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from console.charts.colours import RULE_COLOUR, colour
from console.charts.drawing import plain_json
from console.charts.forest import escaped
from evals.statistics.power import ALPHA, POWER, minimal_detectable_effect, power_of

NUM_POINTS = 41  # of each curve
MOST_CURVES = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class PowerCurve:
    """A paired comparison on n problems."""

    name: str
    sd: float  # of the differences, as measured; above 0
    n: int

    @property
    def detectable(self) -> float | None:
        """Found with probability POWER."""
        return minimal_detectable_effect(sd=self.sd, n=self.n)


def power(curves: Sequence[PowerCurve]) -> dict[str, Any] | None:
    """Power in percent over the difference in points, a diamond at what is found 4 times in 5; None without a curve."""
    known = [(curve, curve.detectable) for curve in curves[:MOST_CURVES]]
    drawn = [(curve, detectable) for curve, detectable in known if detectable is not None]
    if not drawn:
        return None
    most = min(1.0, 1.6 * max(detectable for _, detectable in drawn))
    steps = [most * place / (NUM_POINTS - 1) for place in range(NUM_POINTS)]
    traces = [
        trace
        for place, (curve, detectable) in enumerate(drawn)
        for trace in (_line(curve, steps, place), _diamond(curve, detectable, place))
    ]
    layout = {
        "xaxis": {"title": {"text": "true difference, points"}, "range": [0, 100 * most], "tickangle": 0},
        "yaxis": {"title": {"text": "found, %"}, "range": [0, 104]},
        "hovermode": "closest",
        "showlegend": len(drawn) > 1,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        "shapes": [_level(POWER), _level(ALPHA)],
    }
    return plain_json(traces, layout)


def _line(curve: PowerCurve, steps: Sequence[float], place: int) -> dict[str, Any]:
    found = [power_of(step, sd=curve.sd, n=curve.n) for step in steps]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"{escaped(curve.name)}, n {curve.n:,}",
        "x": [100 * step for step in steps],
        "y": [None if one is None else 100 * one for one in found],
        "line": {"color": colour(place), "width": 2},
        "hovertemplate": f"<b>{escaped(curve.name)}</b><br>a true difference of %{{x:.1f}} points is found "
        f"%{{y:.0f}} times in 100<br>n = {curve.n:,} problems<extra></extra>",
    }


def _diamond(curve: PowerCurve, detectable: float, place: int) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [100 * detectable],
        "y": [100 * POWER],
        "marker": {"color": colour(place), "size": 10, "symbol": "diamond"},
        "showlegend": False,
        "hovertemplate": f"<b>{escaped(curve.name)}</b><br>cannot see less than {100 * detectable:.1f} points"
        f"<br>n = {curve.n:,} problems<extra></extra>",
    }


def _level(share: float) -> dict[str, Any]:
    return {
        "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 100 * share, "y1": 100 * share,
        "line": {"width": 1, "dash": "dot", "color": RULE_COLOUR},
    }  # fmt: skip
