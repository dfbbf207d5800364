"""A reward model's calibration, and what training against one did to it and to who watches."""

from collections.abc import Sequence
from typing import Any

from console.charts.colours import BAD_COLOUR, GOOD_COLOUR, OTHER_COLOUR, RULE_COLOUR
from console.charts.drawing import plotly, to_json
from rl_online.training.overoptimisation import Point, best_of


def reliability(bins: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """How often a reward model is right against how sure it is, with intervals; on the line it is calibrated."""
    known = [one for one in bins if one["confidence"] is not None and one["accuracy"]["share"] is not None]
    if not known:
        return None
    shares = [one["accuracy"]["share"] for one in known]
    figure = plotly().Figure()
    figure.add_scatter(
        x=[50, 100], y=[50, 100], mode="lines", line={"color": RULE_COLOUR, "width": 1, "dash": "dot"},
        name="calibrated", hoverinfo="skip", showlegend=False,
    )  # fmt: skip
    figure.add_scatter(
        x=[100 * one["confidence"] for one in known],
        y=[100 * share for share in shares],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [100 * (one["accuracy"]["high"] - share) for one, share in zip(known, shares, strict=True)],
            "arrayminus": [100 * (share - one["accuracy"]["low"]) for one, share in zip(known, shares, strict=True)],
            "color": OTHER_COLOUR,
        },
        mode="markers+lines",
        marker={"color": GOOD_COLOUR, "size": 8},
        line={"color": GOOD_COLOUR, "width": 1},
        customdata=[one["accuracy"]["n"] for one in known],
        name="right",
        showlegend=False,
        hovertemplate="sure %{x:.1f} %, right %{y:.1f} %, n %{customdata}<extra></extra>",
    )
    figure.update_xaxes(title_text="probability claimed, %", range=[48, 102])
    figure.update_yaxes(title_text="right, %", range=[0, 104])
    figure.update_layout(hovermode="closest")
    return to_json(figure)


def over_optimisation(points: Sequence[Point], *, is_stopped: bool) -> dict[str, Any] | None:
    """Both judges' scores over the root of the KL to the base; marked: the weights kept, and where training stopped."""
    if not points:
        return None
    figure = plotly().Figure()
    distance = [one.root_kl for one in points]
    lines: list[tuple[str, list[float | None], str, str]] = [
        ("reward model", [one.proxy for one in points], BAD_COLOUR, "solid")
    ]
    if any(one.gold is not None for one in points):
        lines.append(("gold", [one.gold for one in points], GOOD_COLOUR, "dash"))
    for name, values, colour, dash in lines:
        figure.add_scatter(
            x=distance,
            y=values,
            mode="lines+markers",
            line={"color": colour, "width": 2, "dash": dash},
            marker={"size": 6},
            customdata=[one.iteration for one in points],
            name=name,
            showlegend=True,
            hovertemplate=f"iteration %{{customdata}}, root KL %{{x:.3g}}: {name} %{{y:.3g}}<extra></extra>",
        )
    marks = [(best_of(points), "kept")] + ([(points[-1], "stopped")] if is_stopped else [])
    for point, text in marks:
        figure.add_vline(x=point.root_kl, line={"width": 1, "color": RULE_COLOUR}, annotation_text=text)
    figure.update_xaxes(title_text="√KL to the base, nats per answer", rangemode="tozero")
    figure.update_yaxes(title_text="score, standard deviations")
    figure.update_layout(hovermode="closest", showlegend=True)
    return to_json(figure)
