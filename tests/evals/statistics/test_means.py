import math

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.stats import ttest_1samp

from evals.statistics.estimate import Kind
from evals.statistics.means import clustered_standard_error, estimate_mean, mean, standard_error


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
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 7, 60)
    values = rng.normal(size=60) + groups
    fit = sm.OLS(values, np.ones(60)).fit(
        cov_type="cluster", cov_kwds={"groups": groups, "use_correction": True, "df_correction": False}
    )
    ours = clustered_standard_error(values.tolist(), groups.tolist())
    # statsmodels also multiplies the variance by (n-1)/(n-k), which is 1 for a mean.
    assert ours == pytest.approx(float(fit.bse[0]))


def test_an_estimated_mean_has_the_t_interval_of_scipy():
    values = np.random.default_rng(1).normal(size=12).tolist()
    found = estimate_mean(values)
    assert (found.low, found.high) == pytest.approx(tuple(ttest_1samp(values, 0).confidence_interval(0.95)))
    assert (found.interval, found.n) == (Kind.T, 12)


def test_the_unscored_lower_the_coverage_and_not_the_mean():
    found = estimate_mean([1.0, None, 0.0, None])
    assert (found.value, found.n, found.num_asked, found.coverage) == (0.5, 2, 4, 0.5)


def test_clusters_are_counted_among_the_scored_and_give_the_degrees_of_freedom():
    # mean .5, clustered error .5 (as above), one degree of freedom: t .975 = 12.7062
    found = estimate_mean([1, 1, 0, 0, None], clusters=["a", "a", "b", "b", "c"])
    assert (found.num_clusters, found.se, found.interval) == (2, pytest.approx(0.5), Kind.CLUSTERED_T)
    assert found.high == pytest.approx(0.5 + 12.7062 * 0.5, abs=1e-4)


@pytest.mark.parametrize(
    ("values", "clusters", "why"),
    [
        ([], None, "no data"),
        ([None, None], None, "none of 2 is scored"),
        ([1.0], None, "one observation says nothing about the error"),
        ([1.0, 0.0], ["a", "a"], "one cluster says nothing about the error"),
        ([1.0, 1.0], None, "what never varied says nothing about the error"),
    ],
)
def test_what_a_mean_cannot_tell_is_said(values, clusters, why):
    found = estimate_mean(values, clusters=clusters)
    assert (found.undefined, found.low, found.interval) == (why, None, Kind.NONE)


def test_values_and_clusters_must_match():
    with pytest.raises(ValueError, match="2 values came with 1 clusters"):
        estimate_mean([1, 0], clusters=["a"])
    with pytest.raises(ValueError, match="2 values came with 1 clusters"):
        clustered_standard_error([1, 0], ["a"])


def test_no_values_have_no_clustered_error():
    assert clustered_standard_error([], []) is None
