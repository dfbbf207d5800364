import pytest

from rl_online.training.overoptimisation import Point, best_of, curve_of, should_stop


def curve(*points):
    return [Point(iteration=n, proxy=proxy, gold=gold, kl=n / 4) for n, (proxy, gold) in enumerate(points)]


@pytest.mark.parametrize(
    ("points", "is_over"),
    [
        ([(0, 0)], False),
        ([(0, 0), (1, 0.5), (2, 0.8)], False),  # both rise
        ([(0, 0), (1, 0.5), (2, 0.41)], False),  # within the margin
        ([(0, 0), (1, 0.5), (2, 0.39)], True),
        ([(0, 0), (1, 0.5), (0.9, 0.1)], False),  # both fell: a bad step
        ([(0, 0), (1, 0.5), (2, 0.45), (3, 0.3)], True),  # against the best, not the one before
        ([(0, 0.5), (1, 0.2)], True),  # it never was better than at the start
        ([(0, None), (1, None)], False),
        ([], False),
    ],
)
def test_it_stops_where_gold_falls_while_the_proxy_rises(points, is_over):
    assert should_stop(curve(*points), margin=0.1) is is_over


def test_the_weights_kept_are_the_first_of_those_gold_liked_best():
    assert best_of(curve((0, 0.1), (1, 0.5), (2, 0.5), (3, 0.2))).iteration == 1


def test_without_gold_the_last_are_kept():
    assert best_of(curve((0, None), (1, None), (2, None))).iteration == 2


def test_a_curve_begins_before_the_first_step():
    start = {"start_proxy": 0.0, "start_gold": 0.1, "start_kl_answer": 0.0}
    history = [start | {"proxy": 1.0, "gold": 0.2, "kl_answer": 4.0}, {"proxy": 2.0, "kl_answer": -0.01}]
    points = curve_of(history)
    assert [(one.iteration, one.proxy, one.gold) for one in points] == [(0, 0.0, 0.1), (1, 1.0, 0.2), (2, 2.0, None)]
    assert [one.root_kl for one in points] == [0.0, 2.0, 0.0]  # an estimate below 0 is noise
