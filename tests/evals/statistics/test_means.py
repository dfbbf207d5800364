import math

import pytest

from evals.statistics.means import clustered_standard_error, mean, standard_error


def test_standard_error_uses_the_sample_standard_deviation():
    # 1 of 6 right: sd = sqrt((25/36 + 5/36) / 5) = .40825, / sqrt(6) = .16667 (lm-eval's toy run)
    assert standard_error([1, 0, 0, 0, 0, 0]) == pytest.approx(1 / 6)


def test_one_value_has_no_standard_error():
    assert standard_error([1.0]) is None


def test_the_mean_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no values"):
        mean([])


def test_clustered_error_adds_residuals_within_a_cluster():
    # mean .5; cluster a sums to +1, b to -1: sqrt(1 + 1) / 4 = .35355, with factor 2/1 -> .5
    values, clusters = [1, 1, 0, 0], ["a", "a", "b", "b"]
    assert clustered_standard_error(values, clusters, small_sample=False) == pytest.approx(math.sqrt(2) / 4)
    assert clustered_standard_error(values, clusters) == pytest.approx(0.5)


def test_one_cluster_has_no_standard_error():
    assert clustered_standard_error([1, 0, 1], ["a", "a", "a"]) is None


def test_clustered_error_equals_statsmodels():
    import numpy as np
    import statsmodels.api as sm

    rng = np.random.default_rng(0)
    groups = rng.integers(0, 7, 60)
    values = rng.normal(size=60) + groups
    fit = sm.OLS(values, np.ones(60)).fit(
        cov_type="cluster", cov_kwds={"groups": groups, "use_correction": True, "df_correction": False}
    )
    ours = clustered_standard_error(values.tolist(), groups.tolist())
    # statsmodels also multiplies the variance by (n-1)/(n-k), which is 1 for a mean.
    assert ours == pytest.approx(float(fit.bse[0]))
