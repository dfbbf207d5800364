"""The demo's table: one row for each checkpoint. Pure formatting; what is not known yet is a dash."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

HEADS = ("checkpoint", "turns", "accept share (95 %)", "held-out", "lag", "seconds", "decision")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    checkpoint: str
    turns: int  # settled
    accepted: int
    share: float | None  # of settled turns; None without turns
    low: float | None
    high: float | None
    held_out: float | None  # mean score on the gate's problems
    lag: float | None  # mean over its batch: updates between sampler and trained weights; None for the first
    seconds: float | None  # from the sealed batch to the decision
    decision: str  # "first", what the gate said, or the update's state where it said nothing
    is_serving: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def render(rows: Sequence[Row]) -> str:
    """Columns as wide as they need to be; a star marks the serving checkpoint."""
    lines = [HEADS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _cells(row: Row) -> tuple[str, ...]:
    share = "-"
    if row.share is not None and row.low is not None and row.high is not None:
        share = f"{row.share:.1%} [{row.low:.1%}, {row.high:.1%}]"
    return (
        f"{row.checkpoint}{' *' if row.is_serving else ''}",
        str(row.turns),
        share,
        "-" if row.held_out is None else f"{row.held_out:.1%}",
        "-" if row.lag is None else f"{row.lag:.2f}",
        "-" if row.seconds is None else f"{row.seconds:.0f}",
        row.decision,
    )
