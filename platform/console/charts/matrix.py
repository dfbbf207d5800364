"""The matrix of pairwise win rates: the row's side against the column's, with n in every cell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from console.charts.drawing import plotly, to_json
from console.charts.forest import escaped

CELL_PX, FRAME_PX, LEAST_PX = 52, 84, 180
LOSES, EVEN, WINS = "rgba(213, 94, 0, .55)", "rgba(138, 143, 152, .14)", "rgba(0, 114, 178, .55)"  # ink stays readable
MAX_LABEL = 18


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """The row's win rate over the column's. `rate` None: too few to say, or none."""

    rate: float | None
    low: float | None
    high: float | None
    n: int
    ties: int = 0  # of them
    interval: str = ""  # its kind
    url: str = ""


def matrix(names: Sequence[str], cells: Mapping[tuple[str, str], Cell]) -> dict[str, Any] | None:
    """None without a single cell that is known. A cell without a rate is a gap that shows its n."""
    if all(cell.rate is None for cell in cells.values()):
        return None
    grid = [[cells.get((row, column)) for column in names] for row in names]
    figure = plotly().Figure()
    figure.add_heatmap(
        x=[_short(name) for name in names],
        y=[_short(name) for name in names],
        z=[[None if cell is None or cell.rate is None else 100 * cell.rate for cell in line] for line in grid],
        zmin=0,
        zmax=100,
        colorscale=[[0, LOSES], [0.5, EVEN], [1, WINS]],
        showscale=False,
        xgap=2,
        ygap=2,
        hoverongaps=False,
        customdata=[[cell.url if cell else "" for cell in line] for line in grid],
        hovertext=[[_hover(names[i], names[j], cell) for j, cell in enumerate(line)] for i, line in enumerate(grid)],
        hovertemplate="%{hovertext}<extra></extra>",
    )
    for i, line in enumerate(grid):
        for j, cell in enumerate(line):
            if cell is not None and cell.n:
                text = f"n {cell.n}" if cell.rate is None else f"{100 * cell.rate:.0f}<br>n {cell.n}"
                figure.add_annotation(x=j, y=i, text=text, showarrow=False, font={"size": 11})
    figure.update_xaxes(type="category", side="top", showgrid=False, tickangle=-30 if len(names) > 4 else 0)
    figure.update_yaxes(type="category", autorange="reversed", showgrid=False)
    figure.update_layout(hovermode="closest", height=max(LEAST_PX, FRAME_PX + CELL_PX * len(names)))
    return to_json(figure, is_linked=any(cell.url for cell in cells.values()))


def _hover(row: str, column: str, cell: Cell | None) -> str:
    if cell is None or cell.rate is None:
        return ""
    bounds = "" if cell.low is None or cell.high is None else (
        f", 95 % {cell.interval} {100 * cell.low:.1f} to {100 * cell.high:.1f} %"
    )  # fmt: skip
    return f"<b>{escaped(row)}</b> over {escaped(column)}<br>{100 * cell.rate:.1f} %{bounds}<br>{_basis(cell)}"


def _basis(cell: Cell) -> str:
    return f"(wins + ties / 2) / decided, n = {cell.n:,} decided, {cell.ties:,} of them ties"


def _short(name: str) -> str:
    return escaped(name if len(name) <= MAX_LABEL else f"{name[: MAX_LABEL - 1]}…")
