"""The tree of a policy's checkpoints, laid out for drawing: versions to the right, abandoned branches below.

Pure: rows in, places out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from registry.models import CheckpointState
from rl_online.selectors import LineEntry

STEP_X, STEP_Y, MARGIN_X, MARGIN_Y = 96, 72, 56, 24
LABEL_X, BEND = 40, 24  # half a label's width; how far a line goes while it turns
GROUND_X, GROUND_Y = 80, 56  # of the area that leads to a checkpoint
NEWEST = 40  # checkpoints drawn; the table below has all


@dataclass(frozen=True, kw_only=True, slots=True)
class Spot:
    """One checkpoint in the drawing."""

    entry: LineEntry
    x: int
    y: int

    @property
    def word(self) -> str:
        """What it is now; a retired one that is off the serving line was rolled back."""
        checkpoint = self.entry.checkpoint
        if checkpoint.state == CheckpointState.RETIRED and not self.entry.is_on_serving_line:
            return "rolled back"
        return str(checkpoint.state)

    @property
    def kind(self) -> str:
        return self.word.replace(" ", "-")

    @property
    def left(self) -> int:
        return self.x - GROUND_X // 2

    @property
    def top(self) -> int:
        return self.y - 16

    @property
    def label_y(self) -> int:
        return self.y + 22

    @property
    def word_y(self) -> int:
        return self.y + 35


@dataclass(frozen=True, kw_only=True, slots=True)
class Edge:
    """From a parent to its child, as an SVG path."""

    path: str
    is_serving_line: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Tree:
    spots: list[Spot]
    edges: list[Edge]
    width: int
    height: int
    num_left_out: int  # older ones


def draw(entries: Sequence[LineEntry]) -> Tree:
    """`entries` as `checkpoint_line` gives them, newest first."""
    shown = sorted(entries, key=lambda entry: entry.checkpoint.version)[-NEWEST:]
    lanes = _lanes(shown)
    spots = [
        Spot(
            entry=entry,
            x=MARGIN_X + place * STEP_X,
            y=MARGIN_Y + lanes[entry.checkpoint.id] * STEP_Y,
        )
        for place, entry in enumerate(shown)
    ]
    by_id = {spot.entry.checkpoint.id: spot for spot in spots}
    edges = [
        Edge(path=_path(by_id[parent], spot), is_serving_line=spot.entry.is_on_serving_line)
        for spot in spots
        if (parent := spot.entry.checkpoint.parent_id) in by_id
    ]
    deepest = max(lanes.values(), default=0)
    return Tree(
        spots=spots,
        edges=edges,
        width=2 * MARGIN_X + max(0, len(spots) - 1) * STEP_X,
        height=MARGIN_Y + deepest * STEP_Y + GROUND_Y,
        num_left_out=len(entries) - len(shown),
    )


def _lanes(shown: Sequence[LineEntry]) -> dict[object, int]:
    """Checkpoint -> how far below the serving line; a branch keeps its lane, a lane is used again once it is free."""
    lanes: dict[object, int] = {}
    busy_until: dict[int, int] = {}  # lane -> place of the last checkpoint in it
    places = {entry.checkpoint.id: place for place, entry in enumerate(shown)}
    for place, entry in enumerate(shown):
        parent = entry.checkpoint.parent_id
        start = places.get(parent, place) if parent else place
        if entry.is_on_serving_line:
            lane = 0
        elif parent in lanes and lanes[parent] > 0 and busy_until[lanes[parent]] == start:
            lane = lanes[parent]
        else:
            lane = next(number for number in range(1, len(shown) + 2) if busy_until.get(number, -1) <= start)
        lanes[entry.checkpoint.id] = lane
        busy_until[lane] = place
    return lanes


def _path(parent: Spot, child: Spot) -> str:
    """Straight on one lane; otherwise along until the parent's label ends, down, and along again."""
    if parent.y == child.y:
        return f"M{parent.x} {parent.y}H{child.x}"
    out, half, whole = parent.x + LABEL_X, parent.x + LABEL_X + BEND // 2, parent.x + LABEL_X + BEND
    return f"M{parent.x} {parent.y}H{out}C{half} {parent.y} {half} {child.y} {whole} {child.y}H{child.x}"
