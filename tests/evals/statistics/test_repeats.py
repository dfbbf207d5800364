import pytest

from evals.statistics.means import clustered_standard_error
from evals.statistics.repeats import at_least, over_items, spread_of_runs


def test_tries_are_reduced_per_item_before_the_error_is_taken():
    # Inspect's streaming run: two items of two epochs, means 1 and .5: SE .25, not .25 / sqrt(2)
    found = over_items({"a": [1, 1], "b": [1, 0]})
    assert (found.value, found.se, found.n) == (0.75, pytest.approx(0.25), 2)


def test_reducers_give_inspects_numbers():
    # three samples of two epochs: match mean .3333 (SE .16667), at_least_1 .6667 (SE .3333)
    tries = {1: [1, 0], 2: [0, 1], 3: [0, 0]}
    mean, once = over_items(tries), over_items(tries, reduce=at_least(1))
    assert (mean.value, mean.se) == (pytest.approx(1 / 3), pytest.approx(1 / 6))
    assert (once.value, once.se) == (pytest.approx(2 / 3), pytest.approx(1 / 3))


def test_an_item_without_a_scored_try_is_unscored_and_not_zero():
    found = over_items({1: [1, None], 2: [None, None], 3: [0, 0]})
    assert (found.value, found.n, found.num_asked) == (0.5, 2, 3)


def test_for_balanced_tries_the_error_equals_the_one_clustered_by_item():
    tries = {item: [float((item * try_) % 3 == 0) for try_ in range(1, 6)] for item in range(11)}
    flat = [(item, score) for item, row in tries.items() for score in row]
    assert over_items(tries).se == pytest.approx(
        clustered_standard_error([score for _, score in flat], [item for item, _ in flat])
    )


def test_families_of_items_cluster_the_error_further():
    found = over_items({"a": [1, 1], "b": [1, 1], "c": [0, 0]}, clusters={"a": "x", "b": "x", "c": "y"})
    assert found.num_clusters == 2


def test_the_spread_of_runs_is_not_the_error_of_the_score():
    assert spread_of_runs([[1, 0, 0, 0], [1, 1, 0, 0]]) == pytest.approx(0.125)
    assert spread_of_runs([[1, 0]]) is None
