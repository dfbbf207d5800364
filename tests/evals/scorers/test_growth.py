import numpy as np
import pytest

from evals.scorers.growth import growth_exponent, ratio_of


def test_a_power_law_is_found_exactly():
    # by hand: log-log points on a line of slope 2
    found = growth_exponent([1, 10, 100, 1000], [2, 200, 20_000, 2_000_000])
    assert (found.estimate, found.low, found.high) == pytest.approx((2, 2, 2))


def test_the_interval_is_students_t_with_two_degrees_fewer():
    # x = 0, 1, 2, 3 and y = 0, 1, 2, 4 in powers of e: slope 1.3, residuals .2, -.1, -.4, .3, so
    # sum of squares .3, error sqrt(.3 / 2 / 5) = .173205, t(2, .975) = 4.302653, half width .745241
    found = growth_exponent(np.exp([0, 1, 2, 3]), np.exp([0, 1, 2, 4]))
    assert found.estimate == pytest.approx(1.3)
    assert found.half_width == pytest.approx(0.745241, abs=1e-6)


def test_three_sizes_are_too_few():
    assert growth_exponent([1, 2, 4, 4], [1, 2, 4, 4]) is None


def test_the_interval_covers_the_truth_as_often_as_it_says():
    random = np.random.default_rng(0)
    sizes = np.array([100, 200, 400, 800, 1600])
    covered = 0
    for _ in range(2000):
        found = growth_exponent(sizes, sizes**1.5 * np.exp(random.normal(0, 0.1, 5)))
        covered += found.low <= 1.5 <= found.high
    assert covered / 2000 == pytest.approx(0.95, abs=0.015)


def test_a_ratio_is_a_geometric_mean():
    # ratios 2, 8: mean of logs is log 4; sd log(4) / sqrt 2, error log(4) / 2, t(1, .975) = 12.706205
    found = ratio_of([2, 8], [1, 1])
    assert found.estimate == pytest.approx(4)
    assert found.high == pytest.approx(4 * 2**12.706205, rel=1e-5)
