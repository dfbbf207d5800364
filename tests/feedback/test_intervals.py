"""Intervals worked by hand and against the published example."""

import pytest

from feedback.intervals import Cluster, share_bounds


def apart(accepted: int, turns: int) -> list[Cluster]:
    return [Cluster(turns=turns, accepted=accepted, is_one_user=False)]


def test_wilson_of_8_of_10():
    bounds = share_bounds(apart(8, 10))
    assert (bounds.low, bounds.high) == (pytest.approx(0.49016, abs=1e-5), pytest.approx(0.94332, abs=1e-5))
    assert bounds.interval == "wilson"


def test_no_turns_is_nothing_known():
    assert (share_bounds([]).low, share_bounds([]).high) == (0, 1)


@pytest.mark.parametrize(("accepted", "low", "high"), [(0, 0, 0.2775), (10, 0.7225, 1)])
def test_all_or_none_has_an_exact_end(accepted, low, high):
    bounds = share_bounds(apart(accepted, 10))
    assert (bounds.low, bounds.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_users_with_one_turn_each_are_not_clustered():
    users = [Cluster(turns=1, accepted=place < 8) for place in range(10)]
    assert share_bounds(users) == share_bounds(apart(8, 10))


def test_two_users_who_always_agree_with_themselves_count_as_one_turn():
    # p = .5; variance 2/1 * (1 + 1) / 16 = .25, binomial .0625: design effect 4, n 1. Wilson of .5 at n = 1:
    # half width z/(1+z^2) * sqrt(.25 + z^2/4) = .5 * z / sqrt(1 + z^2) = .4454
    bounds = share_bounds([Cluster(turns=2, accepted=2), Cluster(turns=2, accepted=0)])
    assert (bounds.low, bounds.high) == (pytest.approx(0.0546, abs=1e-4), pytest.approx(0.9454, abs=1e-4))
    assert bounds.interval == "wilson_clustered"


def test_a_design_effect_below_one_does_not_narrow():
    # Every user has 1 of 2: the clustered variance is 0.
    users = [Cluster(turns=2, accepted=1) for _ in range(5)]
    assert (share_bounds(users).low, share_bounds(users).high) == (
        share_bounds(apart(5, 10)).low,
        share_bounds(apart(5, 10)).high,
    )


def test_turns_of_a_single_user_are_one_observation():
    bounds = share_bounds([Cluster(turns=100, accepted=50)])
    assert bounds.low == pytest.approx(0.0546, abs=1e-4)


def test_turns_of_nobody_known_stand_for_themselves():
    # One user with 2 of 2 and two unknown turns, 0 of 2: G = 3, squares 1 + .25 + .25 = 1.5, variance 1.5 * 1.5 / 16
    # = .140625 over .0625: n = 4 / 2.25 = 1.7778
    n, z = 4 / 2.25, 1.959963984540054
    half = z / (1 + z * z / n) * (0.25 / n + z * z / (4 * n * n)) ** 0.5
    bounds = share_bounds([Cluster(turns=2, accepted=2), *apart(0, 2)])
    assert bounds.low == pytest.approx(0.5 - half)
