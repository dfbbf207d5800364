from itertools import combinations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.statistics.pass_at import pass_at_k, pass_hat_k


@pytest.mark.parametrize(("k", "expected"), [(1, 0.3), (2, 0.533333), (5, 0.916667), (10, 1.0)])
def test_pass_at_k_gives_the_reference_values(k, expected):
    assert pass_at_k([(3, 10)], k).value == pytest.approx(expected, abs=1e-6)


@given(st.integers(1, 7), st.data())
def test_both_are_shares_of_all_ways_to_choose_k_tries(n, data):
    right, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    chosen = [sum(place < right for place in places) for places in combinations(range(n), k)]
    assert pass_at_k([(right, n)], k).value == pytest.approx(sum(hits > 0 for hits in chosen) / comb(n, k))
    assert pass_hat_k([(right, n)], k).value == pytest.approx(sum(hits == k for hits in chosen) / comb(n, k))


def test_row_3_fewer_scored_tries_than_k_are_unscored_and_not_solved():
    # three asked for, one scored
    found = pass_at_k([(1, 1)], 3)
    assert (found.value, found.undefined) == (None, "none of 1 is scored")
    mixed = pass_at_k([(1, 1), (0, 3), (3, 3)], 3)
    assert (mixed.value, mixed.n, mixed.coverage) == (0.5, 2, pytest.approx(2 / 3))


def test_the_error_is_over_problems():
    found = pass_at_k([(2, 2), (0, 2), (1, 2), (1, 2)], 1)
    assert (found.value, found.se) == (0.5, pytest.approx((0.5 / 3) ** 0.5 / 2))


@pytest.mark.parametrize(("tries", "k", "why"), [([(1, 2)], 0, "k is 0"), ([(3, 2)], 1, "problem 0 has 3 right of 2")])
def test_impossible_counts_are_refused(tries, k, why):
    with pytest.raises(ValueError, match=why):
        pass_at_k(tries, k)
