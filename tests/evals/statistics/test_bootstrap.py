import numpy as np
import pytest
from scipy.stats import bootstrap as scipy_bootstrap

from evals.statistics.bootstrap import bca_bounds, bootstrap_mean, bootstrap_statistic, resampled_means
from evals.statistics.estimate import Kind
from evals.statistics.means import clustered_standard_error, standard_error


def skewed(n=60, seed=3):
    return np.random.default_rng(seed).exponential(size=n)


def test_the_percentile_interval_equals_scipys_up_to_the_luck_of_the_draw():
    values = skewed()
    oracle = scipy_bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", rng=1)
    found = bootstrap_mean(values, resamples=20_000).estimate
    assert (found.low, found.high) == pytest.approx(tuple(oracle.confidence_interval), abs=0.01)
    assert found.se == pytest.approx(oracle.standard_error, rel=0.02)
    assert found.interval == Kind.PERCENTILE


def test_bca_bounds_equal_scipys_on_the_same_resamples():
    values = skewed()
    oracle = scipy_bootstrap((values,), np.mean, n_resamples=5_000, method="BCa", rng=2)
    jackknife = (values.sum() - values) / (len(values) - 1)
    found = bca_bounds(oracle.bootstrap_distribution, values.mean(), jackknife, tail=0.025)
    assert found == pytest.approx(tuple(oracle.confidence_interval), abs=1e-9)


def test_clusters_are_drawn_whole():
    rng = np.random.default_rng(4)
    users = np.repeat(np.arange(80), 5)
    values = rng.normal(size=80)[users] + 0.3 * rng.normal(size=400)
    found = bootstrap_mean(values, clusters=users).estimate
    assert found.se == pytest.approx(clustered_standard_error(values.tolist(), users.tolist()), rel=0.03)
    assert found.se > 2 * standard_error(values.tolist())
    assert (found.interval, found.num_clusters, found.n) == (Kind.CLUSTERED_PERCENTILE, 80, 400)


def test_clusters_of_any_size_and_name_equal_a_plain_loop():
    rng = np.random.default_rng(5)
    names = [f"user {number}" for number in rng.integers(0, 90, 700)]
    values = rng.normal(size=700)
    members = {name: np.array([place for place, one in enumerate(names) if one == name]) for name in set(names)}
    groups, means = list(members.values()), []
    for _ in range(4_000):
        drawn = np.concatenate([groups[place] for place in rng.integers(len(groups), size=len(groups))])
        means.append(values[drawn].mean())
    found = bootstrap_mean(values, clusters=names, resamples=40_000).estimate
    assert found.se == pytest.approx(np.std(means), rel=0.05)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])), abs=0.005)


def test_counting_types_of_clusters_draws_from_the_same_distribution():
    # 0/1 scores of 300 users with 4 turns: 5 types; against drawing users one by one
    rng = np.random.default_rng(6)
    sums, sizes = rng.binomial(4, rng.random(300)).astype(float), np.full(300, 4.0)
    fast = resampled_means(sums, sizes, resamples=20_000, seed=1)
    slow = (sums[rng.integers(300, size=(20_000, 300))].sum(axis=1)) / 1200
    assert fast.std() == pytest.approx(slow.std(), rel=0.03)
    assert np.quantile(fast, [0.025, 0.975]) == pytest.approx(np.quantile(slow, [0.025, 0.975]), abs=0.003)


def test_the_same_seed_gives_the_same_interval_and_is_told():
    one, two, other = (bootstrap_mean(skewed(), seed=seed, resamples=500) for seed in (1, 1, 2))
    assert (one.seed, one.resamples) == (1, 500)
    assert one.estimate == two.estimate != other.estimate


def test_bca_leans_towards_the_long_tail():
    values, kinds = skewed(40), (Kind.PERCENTILE, Kind.BCA)
    plain, corrected = (bootstrap_mean(values, kind=kind).estimate for kind in kinds)
    assert corrected.low > plain.low and corrected.high > plain.high
    clustered = bootstrap_mean(values, kind=Kind.BCA, clusters=np.arange(40) // 2).estimate
    assert (corrected.interval, clustered.interval) == (Kind.BCA, Kind.CLUSTERED_BCA)


def test_intervals_hold_as_often_as_they_say():
    # 60 users of 5 turns, true mean 0: 95 % of the intervals cover it, within the luck of 400 tries
    rng, hits = np.random.default_rng(7), 0
    users = np.repeat(np.arange(60), 5)
    for seed in range(400):
        values = rng.normal(size=60)[users] + rng.normal(size=300)
        found = bootstrap_mean(values, clusters=users, resamples=400, seed=seed).estimate
        hits += found.low <= 0 <= found.high
    assert 0.91 <= hits / 400 <= 0.98


def test_the_unscored_stay_outside():
    found = bootstrap_mean([1.0, None, 0.0, 1.0], clusters=["a", "b", "b", "c"], resamples=100).estimate
    assert (found.n, found.num_asked, found.num_clusters) == (3, 4, 3)


@pytest.mark.parametrize(
    ("values", "clusters", "why"),
    [
        ([], None, "no data"),
        ([1.0], None, "one observation says nothing about the error"),
        ([1.0, 0.0], ["a", "a"], "one cluster says nothing about the error"),
        ([1.0, 1.0, 1.0], None, "what never varied says nothing about the error"),
    ],
)
def test_what_cannot_be_told_says_why(values, clusters, why):
    found = bootstrap_mean(values, clusters=clusters).estimate
    assert (found.low, found.undefined) == (None, why)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="2 values came with 1 clusters"):
        bootstrap_mean([1, 0], clusters=["a"])
    with pytest.raises(ValueError, match="value 1 is nan; leave out"):
        bootstrap_mean(np.array([1.0, np.nan]))
    with pytest.raises(ValueError, match="a bootstrap is"):
        bootstrap_mean([1, 0], kind=Kind.T)


def test_any_statistic_can_be_resampled_by_cluster():
    rng = np.random.default_rng(8)
    values, users = rng.normal(size=200), np.repeat(np.arange(50), 4).tolist()
    found = bootstrap_statistic(lambda places: float(np.median(values[places])), clusters=users, resamples=400).estimate
    assert (found.value, found.num_clusters) == (pytest.approx(np.median(values)), 50)
    assert found.low < found.value < found.high


@pytest.mark.parametrize(
    ("statistic", "clusters", "why"),
    [
        (lambda places: None, ["a", "b"], "undefined on the data itself"),
        (lambda places: 1.0, ["a", "a"], "one cluster says nothing about the error"),
        (lambda places: 1.0, ["a", "b"], "what never varied says nothing about the error"),
        (lambda places: 1.0 if len(set(places.tolist())) > 1 else None, ["a", "b"], "undefined on a resample"),
    ],
)
def test_a_statistic_that_is_undefined_somewhere_has_no_interval(statistic, clusters, why):
    found = bootstrap_statistic(statistic, clusters=clusters, resamples=50).estimate
    assert found.low is None and why in found.undefined
