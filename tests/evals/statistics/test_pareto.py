from hypothesis import given
from hypothesis import strategies as st

from evals.statistics.pareto import Point, frontier


def names(points):
    return [point.name for point in frontier(points)]


def test_what_costs_more_and_is_no_better_falls_out():
    points = [
        Point(name="cheap", cost=1, quality=0.4),
        Point(name="good", cost=5, quality=0.9),
        Point(name="dear", cost=6, quality=0.9),
        Point(name="bad", cost=2, quality=0.3),
    ]
    assert names(points) == ["cheap", "good"]


def test_twins_stand_together():
    assert names([Point(name="a", cost=1, quality=1), Point(name="b", cost=1, quality=1)]) == ["a", "b"]


def test_nothing_has_no_frontier():
    assert frontier([]) == []


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=20))
def test_every_point_is_on_the_frontier_or_beaten_by_one_that_is(pairs):
    points = [Point(name=str(i), cost=cost, quality=quality) for i, (cost, quality) in enumerate(pairs)]
    best = frontier(points)
    assert best and all(
        point in best or any(one.cost <= point.cost and one.quality >= point.quality for one in best)
        for point in points
    )
