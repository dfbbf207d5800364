"""The tree: the serving line on top, branches below it, nothing drawn over anything else."""

from dataclasses import dataclass
from uuid import UUID

import pytest

from console.reads.lineage_tree import NEWEST, draw
from rl_online.selectors import LineEntry


@dataclass
class Row:
    """What the tree reads of a checkpoint."""

    id: UUID
    version: int
    parent_id: UUID | None
    state: str


def entries(parents: dict[int, int | None], *, line: set[int], states: dict[int, str] | None = None):
    """version -> parent, newest first as `checkpoint_line` gives them."""
    return [
        LineEntry(
            checkpoint=Row(
                id=UUID(int=version),
                version=version,
                parent_id=UUID(int=parent) if parent else None,
                state=(states or {}).get(version, "retired"),
            ),
            run=None,
            report=None,
            is_serving=version == max(line),
            is_on_serving_line=version in line,
            lag=None,
        )
        for version, parent in sorted(parents.items(), reverse=True)
    ]


def lanes(tree) -> dict[int, int]:
    top = min(spot.y for spot in tree.spots)
    step = min((spot.y - top for spot in tree.spots if spot.y > top), default=1)
    return {spot.entry.checkpoint.version: (spot.y - top) // step for spot in tree.spots}


def test_the_serving_line_is_the_upper_one_and_versions_go_right():
    tree = draw(entries({1: None, 2: 1, 3: 2}, line={1, 2, 3}))
    assert lanes(tree) == {1: 0, 2: 0, 3: 0}
    assert [spot.x for spot in tree.spots] == sorted({spot.x for spot in tree.spots})
    assert all(edge.is_serving_line for edge in tree.edges) and len(tree.edges) == 2


def test_a_rolled_back_branch_hangs_below_where_it_left():
    found = entries({1: None, 2: 1, 3: 2, 4: 1}, line={1, 4}, states={4: "serving", 3: "retired", 2: "retired"})
    tree = draw(found)
    assert lanes(tree) == {1: 0, 2: 1, 3: 1, 4: 0}
    assert {spot.entry.checkpoint.version: spot.word for spot in tree.spots}[3] == "rolled back"


@pytest.mark.parametrize("seed", range(8))
def test_no_two_checkpoints_share_a_place_and_no_line_runs_through_one(seed):
    import random

    chance = random.Random(seed)
    parents: dict[int, int | None] = {1: None}
    for version in range(2, 30):
        parents[version] = chance.randint(max(1, version - 6), version - 1)
    line, at = set(), 29
    while at:
        line.add(at)
        at = parents[at]
    tree = draw(entries(parents, line=line))
    by_version = {spot.entry.checkpoint.version: spot for spot in tree.spots}
    assert len({(spot.x, spot.y) for spot in tree.spots}) == 29
    for version, parent in parents.items():
        if parent is None:
            continue
        child, start = by_version[version], by_version[parent]
        between = [spot for spot in tree.spots if start.x < spot.x < child.x and spot.y == child.y]
        assert between == [], f"the line to {version} runs through {between[0].entry.checkpoint.version}"


def test_only_the_newest_are_drawn_and_the_rest_counted():
    tree = draw(entries({n: n - 1 or None for n in range(1, 51)}, line=set(range(1, 51))))
    assert (len(tree.spots), tree.num_left_out) == (NEWEST, 10)
    assert len(tree.edges) == NEWEST - 1


def test_one_checkpoint_and_none():
    assert len(draw(entries({1: None}, line={1})).spots) == 1
    assert draw([]).spots == []
