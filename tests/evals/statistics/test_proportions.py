import pytest
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from evals.statistics.estimate import Kind
from evals.statistics.proportions import compare_shares, newcombe, wilson, wilson_clustered


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"), [(0, 10, 0.0, 0.27753), (8, 10, 0.49016, 0.94332), (1, 1, 0.2065, 1.0)]
)
def test_wilson_gives_the_reference_intervals(successes, n, low, high):
    share = wilson(successes, n)
    assert (share.low, share.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-5))


def test_wilson_equals_statsmodels_on_the_outside_data():
    # RealHumanEval: GPT-3.5 (chat), 112 of 305
    share = wilson(112, 305)
    assert (share.low, share.high) == pytest.approx(proportion_confint(112, 305, method="wilson"))
    assert share.interval == "wilson"


def test_nothing_shown_has_no_share_and_the_whole_interval():
    share = wilson(0, 0)
    assert (share.share, share.low, share.high) == (None, 0.0, 1.0)


def test_clustering_widens_the_interval_where_users_agree_with_themselves():
    # users a: 1 1, b: 0 0; p .5, clustered variance 2 * 2 / 16 = .25, binomial .0625, design effect 4, effective n 1
    share = wilson_clustered([True, True, False, False], ["a", "a", "b", "b"])
    assert share.effective_n == pytest.approx(1.0)
    assert (share.low, share.high) == pytest.approx(proportion_confint(0.5, 1, method="wilson"))


def test_clustering_never_narrows_the_interval():
    # each user has one of each: clustered variance 0, design effect 0 counts as 1
    share = wilson_clustered([True, False, True, False], ["a", "a", "b", "b"])
    assert (share.low, share.high) == pytest.approx((wilson(2, 4).low, wilson(2, 4).high))


def test_users_without_a_name_are_clusters_of_their_own():
    anonymous = wilson_clustered([True, True, False, False], [None] * 4)
    assert anonymous.effective_n == pytest.approx(3.0)  # design effect G/(G-1) = 4/3


def test_a_null_user_is_not_the_user_called_by_its_position():
    assert wilson_clustered([True, False], [None, 0]).effective_n == pytest.approx(1.0)


def test_turns_of_one_user_count_as_one_observation():
    assert wilson_clustered([True, False, True], ["a"] * 3).effective_n == 1.0


def bounds(share):
    return share.share, share.low, share.high


def test_newcombe_gives_the_reference_interval():
    found = newcombe(bounds(wilson(56, 70)), bounds(wilson(48, 80)))
    assert (found.difference, found.low, found.high) == pytest.approx((0.2, 0.05243, 0.33387), abs=1e-5)


@pytest.mark.parametrize(("a", "n", "b", "m"), [(1, 10, 9, 10), (0, 5, 5, 5), (30, 40, 30, 44)])
def test_newcombe_equals_statsmodels(a, n, b, m):
    found = newcombe(bounds(wilson(a, n)), bounds(wilson(b, m)))
    assert (found.low, found.high) == pytest.approx(confint_proportions_2indep(a, n, b, m, method="newcomb"))


def test_a_side_without_trials_leaves_the_difference_unknown():
    found = newcombe(bounds(wilson(3, 4)), None)
    assert (found.difference, found.low, found.high) == (None, -1.0, 1.0)


def test_a_share_is_an_estimate_with_its_coverage():
    found = wilson(8, 10).estimate(num_asked=16)
    assert (found.value, found.coverage, found.interval, found.num_clusters) == (0.8, 0.625, Kind.WILSON, None)
    clustered = wilson_clustered([True, False, True], ["a", "a", None]).estimate()
    assert (clustered.interval, clustered.num_clusters) == (Kind.WILSON_CLUSTERED, 2)


def test_no_trials_say_so():
    assert wilson(0, 0).estimate().undefined == "no data"
    assert wilson(0, 0).estimate(num_asked=3).undefined == "none of 3 is scored"


def test_two_shares_are_compared_by_name_of_the_interval():
    found = compare_shares(wilson(56, 70), wilson(48, 80))
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.05243, 0.33387), abs=1e-5)
    assert (found.interval, found.n, found.num_clusters) == (Kind.NEWCOMBE, 70, None)


def test_clusters_of_both_sides_are_counted():
    one = wilson_clustered([True, True, False], ["a", "a", "b"])
    assert compare_shares(one, one).num_clusters == 4


def test_a_comparison_with_a_side_that_had_no_trials_is_undefined():
    assert compare_shares(wilson(1, 2), wilson(0, 0)).undefined == "one side has no trials"


def test_shares_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="3 successes in 2 trials"):
        wilson(3, 2)
    with pytest.raises(ValueError, match="1 outcomes came with 2 clusters"):
        wilson_clustered([True], ["a", "b"])


def test_users_who_all_accepted_are_independent_as_far_as_anyone_can_see():
    share = wilson_clustered([True] * 6, ["a", "a", "b", "b", "c", "c"])
    assert (share.effective_n, share.low) == (6.0, wilson(6, 6).low)
