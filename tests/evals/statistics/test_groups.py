import math

import pytest

from evals.statistics.estimate import around, unknown
from evals.statistics.groups import mean_of_benchmarks, mean_of_items, pooled_standard_error
from evals.statistics.means import estimate_mean

PARTS = [around(0.5, 0.02, n=100), around(0.7, 0.03, n=400)]


def test_row_8_an_unweighted_group_mean_has_the_error_of_its_own_weights():
    # n 100 and 400, SE .02 and .03: sqrt(.02^2 + .03^2) / 2 = .018028, not the pooled .024347
    found = mean_of_benchmarks(PARTS)
    assert (found.value, found.se) == (pytest.approx(0.6), pytest.approx(0.018028, abs=1e-6))
    assert pooled_standard_error([0.02, 0.03], [100, 400]) == pytest.approx(0.024347, abs=1e-6)


def test_a_mean_over_items_is_weighted_by_their_number():
    found = mean_of_items(PARTS)
    assert found.value == pytest.approx(0.66)
    assert found.se == pytest.approx(math.hypot(0.2 * 0.02, 0.8 * 0.03))


def test_a_part_of_one_item_leaves_the_groups_error_unknown_and_its_mean_known():
    # lm-eval's toy group: 1 of 6 and 1 of 1 -> 2/7 = .285714, error N/A
    found = mean_of_items([estimate_mean([1, 0, 0, 0, 0, 0]), estimate_mean([1])])
    assert (found.value, found.se) == (pytest.approx(0.285714, abs=1e-6), None)
    assert found.undefined == "1 of 2 benchmarks without an error"


def test_a_part_without_a_score_leaves_the_group_undefined():
    found = mean_of_benchmarks([PARTS[0], unknown("no data")])
    assert (found.value, found.undefined) == (None, "1 of 2 benchmarks without a score")


def test_no_parts_are_no_data():
    assert mean_of_items([]).undefined == "no data"


def test_errors_and_sizes_must_match():
    with pytest.raises(ValueError, match="1 errors came with 2 sizes"):
        pooled_standard_error([0.1], [3, 4])
