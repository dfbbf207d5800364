import math

import numpy as np
import pytest

from evals.statistics.ratio import ratio


def test_the_error_of_a_ratio_is_that_of_its_residuals_by_cluster():
    # (y, x): (1, 1), (2, 1), (3, 4): R 1, residuals 0, 1, -1; SE sqrt(3/2 * 2) / 6, t of 2 degrees 4.30265
    found = ratio([(1, 1), (2, 1), (3, 4)])
    assert (found.value, found.se, found.num_clusters) == (1.0, pytest.approx(math.sqrt(3) / 6), 3)
    assert found.high == pytest.approx(math.exp(4.30265 * math.sqrt(3) / 6), rel=1e-4)
    assert found.low == pytest.approx(1 / found.high)


def test_nothing_below_the_line_has_no_ratio_and_one_cluster_no_interval():
    assert ratio([(3, 0), (1, 0)]) is None and ratio([]) is None
    assert (ratio([(3, 2)]).value, ratio([(3, 2)]).low) == (1.5, None)
    assert ratio([(0, 2), (0, 1)]).low is None


def test_its_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(600):
        x = rng.poisson(8, 40) + 1
        y = 0.02 * x * rng.lognormal(-0.08, 0.4, 40)  # mean 1 of the factor: -.4^2 / 2
        found = ratio(list(zip(y, x, strict=True)))
        covered += found.low <= 0.02 <= found.high
    assert 0.92 <= covered / 600 <= 0.98
