"""What was heard about one turn or session, by when and what kind."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from console.charts.colours import BAD_COLOUR, GOOD_COLOUR, OTHER_COLOUR, RULE_COLOUR
from console.charts.drawing import plotly, to_json

SAYS = {  # what a signal alone says of the turn -> name, colour, symbol
    "accept": ("says accept", GOOD_COLOUR, "circle"),
    "reject": ("says reject", BAD_COLOUR, "x"),
    "": ("has no say", OTHER_COLOUR, "circle-open"),
    "superseded": ("superseded", RULE_COLOUR, "circle-x-open"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Heard:
    """One point."""

    at: datetime | float  # a moment, or seconds after the answer
    kind: str
    says: str  # a key of SAYS
    text: str  # for the hover
    url: str = ""  # where a click leads


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """A thin labelled line: shown, settled, promoted."""

    at: datetime | float
    text: str


def timeline(heard: Sequence[Heard], *, moments: Sequence[Moment] = ()) -> dict[str, Any] | None:
    """A lane a kind, in order of first appearance from the top; None when nothing was heard."""
    if not heard:
        return None
    go = plotly()
    figure = go.Figure()
    for says, (name, colour, symbol) in SAYS.items():
        points = [one for one in heard if one.says == says]
        if not points:
            continue
        figure.add_scatter(
            x=[one.at for one in points],
            y=[one.kind for one in points],
            mode="markers",
            name=name,
            marker={"color": colour, "symbol": symbol, "size": 11, "line": {"width": 2 if "open" in symbol else 0}},
            text=[one.text for one in points],
            customdata=[one.url for one in points],
            hovertemplate="%{text}<extra></extra>",
        )
    is_seconds = isinstance(heard[0].at, int | float)
    for moment in moments:
        figure.add_vline(x=moment.at, line={"width": 1, "dash": "dot", "color": RULE_COLOUR})
        figure.add_annotation(
            x=moment.at, y=1, yref="paper", yanchor="bottom", text=moment.text, showarrow=False, font={"size": 11}
        )
    lanes = list(dict.fromkeys(one.kind for one in heard))
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=lanes[::-1], fixedrange=True)
    figure.update_xaxes(title_text="seconds after the answer" if is_seconds else "", fixedrange=is_seconds)
    figure.update_layout(hovermode="closest", showlegend=True, legend={"y": -0.3, "yanchor": "top"})
    return to_json(figure, is_linked=any(one.url for one in heard))
