"""The forest plot: one estimate a row with its interval, whose kind is named, against a line of no difference."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from console.charts.colours import BAD_COLOUR, GOOD_COLOUR, OTHER_COLOUR, RULE_COLOUR
from console.charts.drawing import plotly, to_json

ROW_PX = 30
LEAST_PX, FRAME_PX = 120, 64
MAX_LABEL = 34


@dataclass(frozen=True, kw_only=True, slots=True)
class ForestRow:
    """One row. `value` None: nothing is known, and the row says so."""

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    interval: str = ""  # its kind, e.g. "clustered t"
    url: str = ""  # where a click leads
    of: str = "problems"
    is_head: bool = False  # a total over the rows below it: drawn heavier
    unknown: str = "nothing in common"  # why there is no value


def forest(
    rows: Sequence[ForestRow], *, title: str, scale: float = 100.0, line_at: float | None = 0.0, is_signed: bool = True
) -> dict[str, Any] | None:
    """Values times `scale`, the first row on top; None without any that is known.

    A row whose whole interval lies on one side of the line is coloured by the side, others are grey.
    """
    if all(row.value is None for row in rows):
        return None
    figure = plotly().Figure()
    for place, row in enumerate(rows):
        if row.value is None:
            figure.add_annotation(
                x=0.5, xref="paper", y=place, text=f"{escaped(row.name)}: {row.unknown}", showarrow=False,
                font={"size": 11},
            )  # fmt: skip
            continue
        figure.add_scatter(
            name=row.name,
            x=[scale * row.value],
            y=[place],
            error_x=_bar(row, row.value, scale=scale),
            mode="markers",
            marker={"color": _colour(row, line_at), "size": 11 if row.is_head else 8},
            customdata=[row.url],
            showlegend=False,
            hovertemplate=_hover(row, scale=scale, sign="+" if is_signed else ""),
        )
    if line_at is not None:
        figure.add_vline(x=scale * line_at, line={"width": 1, "color": RULE_COLOUR})
    figure.update_xaxes(title_text=title)
    figure.update_yaxes(
        tickmode="array",
        tickvals=list(range(len(rows))),
        ticktext=[f"{_label(row.name)}  n {row.n:,}" for row in rows],
        range=[len(rows) - 0.5, -0.5],
        showgrid=False,
        zeroline=False,
    )
    figure.update_layout(hovermode="closest", height=height(len(rows)))
    return to_json(figure, is_linked=any(row.url for row in rows))


def _bar(row: ForestRow, value: float, *, scale: float) -> dict[str, Any] | None:
    """None without an interval: a bar without width would say certainty."""
    if row.low is None or row.high is None:
        return None
    return {
        "type": "data",
        "symmetric": False,
        "array": [scale * (row.high - value)],
        "arrayminus": [scale * (value - row.low)],
        "thickness": 3 if row.is_head else 1.5,
        "width": 5,
    }


def height(num_rows: int) -> int:
    """In pixels, so that every row has room."""
    return max(LEAST_PX, FRAME_PX + ROW_PX * num_rows)


def _hover(row: ForestRow, *, scale: float, sign: str) -> str:
    def number(value: float) -> str:
        return f"{scale * value:{sign}.1f}".replace("-", "−")

    assert row.value is not None
    bounds = "no interval: too few"
    if row.low is not None and row.high is not None:
        bounds = f"95 % {row.interval} {number(row.low)} to {number(row.high)}"
    return f"<b>{escaped(row.name)}</b><br>{number(row.value)}, {bounds}<br>n = {row.n:,} {row.of}<extra></extra>"


def _colour(row: ForestRow, line_at: float | None) -> str:
    if line_at is None or row.low is None or row.high is None or row.low <= line_at <= row.high:
        return OTHER_COLOUR
    return GOOD_COLOUR if row.low > line_at else BAD_COLOUR


def _label(name: str) -> str:
    return escaped(name if len(name) <= MAX_LABEL else f"{name[: MAX_LABEL - 1]}…")


def escaped(name: str) -> str:
    """Plotly reads a few HTML tags; a name is only ever text."""
    return name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
