import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel
from statsmodels.stats.contingency_tables import mcnemar

from evals.statistics.estimate import Kind
from evals.statistics.paired import NothingInCommon, mcnemar_exact, p_value, paired_difference, two_sided


def test_pairs_are_joined_on_keys_and_the_rest_is_reported():
    result = paired_difference({"a": 1, "b": 1, "c": 0}, {"a": 0, "b": 1, "d": 1})
    assert (result.num_pairs, result.mean, result.dropped_new, result.dropped_old) == (2, 0.5, 1, 1)


def test_an_unscored_answer_drops_its_pair_and_is_not_a_zero():
    result = paired_difference({"a": 1, "b": None}, {"a": 1, "b": 1})
    assert (result.num_pairs, result.mean, result.dropped_old) == (1, 0.0, 1)


def test_nothing_in_common_is_refused():
    with pytest.raises(NothingInCommon, match="0 problems in common"):
        paired_difference({"c": 1}, {"a": 1, "b": 0})


def test_the_lower_bound_is_the_one_sided_t_bound():
    new = {str(index): float(index % 3 != 0) for index in range(30)}
    old = {str(index): float(index % 2 == 0) for index in range(30)}
    result = paired_difference(new, old)
    interval = ttest_rel(list(new.values()), list(old.values()), alternative="greater").confidence_interval(0.95)
    assert result.lower == pytest.approx(interval.low)
    assert result.bound == "t"


def test_the_bound_is_exact_when_no_answer_differs():
    # 100 equal answers: a problem that got worse has probability at most 1 - .05^(1/100) = .02951
    same = {str(index): float(index % 2) for index in range(100)}
    result = paired_difference(same, same)
    assert (result.bound, result.mean, result.se) == ("exact", 0.0, 0.0)
    assert result.lower == pytest.approx(-(1 - 0.05 ** (1 / 100)))


def test_three_equal_answers_prove_very_little():
    same = {"a": 1, "b": 1, "c": 0}
    assert paired_difference(same, same).lower == pytest.approx(-0.6316, abs=1e-4)


def test_a_single_pair_has_no_error_and_an_exact_bound():
    result = paired_difference({"a": 1}, {"a": 1})
    assert (result.se, result.clustered_se) == (None, None)
    assert result.lower == pytest.approx(-0.95)


def test_clustered_error_is_unknown_for_one_family():
    result = paired_difference({"a": 1, "b": 0}, {"a": 0, "b": 0}, clusters={"a": "sum", "b": "sum"})
    assert (result.num_clusters, result.clustered_se) == (1, None)


def test_clustered_error_by_family():
    # differences 1, 1 | -1, -1: mean 0, cluster sums 2, -2; sqrt(8) / 4 = .7071, with factor 2 -> 1
    new, old = {"a": 1, "b": 1, "c": 0, "d": 0}, {"a": 0, "b": 0, "c": 1, "d": 1}
    result = paired_difference(new, old, clusters={"a": "x", "b": "x", "c": "y", "d": "y"})
    assert (result.clustered_se_plain, result.clustered_se) == (pytest.approx(0.70711, abs=1e-5), pytest.approx(1.0))


def test_the_drawn_interval_is_the_paired_t_interval():
    new = {str(index): float(index % 3 != 0) for index in range(30)}
    old = {str(index): float(index % 2 == 0) for index in range(30)}
    drawn = two_sided(paired_difference(new, old, confidence=0.975))
    expected = ttest_rel(list(new.values()), list(old.values())).confidence_interval(0.95)
    assert (drawn.low, drawn.high, drawn.kind) == (pytest.approx(expected.low), pytest.approx(expected.high), "t")
    assert drawn.confidence == pytest.approx(0.95)


def test_the_drawn_interval_is_clustered_where_families_move_together():
    # families of two: differences 1 1 | 0 0 | 0 0; mean 1/3, cluster residuals 4/3, -2/3, -2/3
    # SE = sqrt(3/2 * (16 + 4 + 4)/9) / 6 = 1/3; t(2, .975) = 4.30265, so -1.10 is cut to -1 and 1.77 to 1
    new, old = dict.fromkeys("abcdef", 1.0), {"a": 0, "b": 0, "c": 1, "d": 1, "e": 1, "f": 1}
    families = {"a": 1, "b": 1, "c": 2, "d": 2, "e": 3, "f": 3}
    difference = paired_difference(new, old, clusters=families, confidence=0.975)
    drawn = two_sided(difference)
    assert difference.clustered_se == pytest.approx(1 / 3)
    assert (drawn.low, drawn.high, drawn.kind) == (-1.0, 1.0, "clustered t")


def test_the_drawn_interval_is_exact_when_nothing_differs():
    same = {str(index): 1.0 for index in range(20)}
    drawn = two_sided(paired_difference(same, same, confidence=0.975))
    assert (drawn.kind, drawn.low) == ("exact", pytest.approx(-(1 - 0.025 ** (1 / 20))))


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=40))
def test_swapping_the_sides_mirrors_every_number(pairs):
    new = {str(index): pair[0] for index, pair in enumerate(pairs)}
    old = {str(index): pair[1] for index, pair in enumerate(pairs)}
    there, back = paired_difference(new, old), paired_difference(old, new)
    assert back.mean == pytest.approx(-there.mean)
    assert back.lower == pytest.approx(-there.upper)
    assert (back.better, back.worse) == (there.worse, there.better)


@pytest.mark.parametrize(
    ("better", "worse", "p_value"), [(121, 59, 4.434e-6), (10, 5, 0.30176), (9, 5, 0.42395), (0, 0, 1.0)]
)
def test_mcnemar_gives_the_reference_values(better, worse, p_value):
    assert mcnemar_exact(better, worse) == pytest.approx(p_value, rel=1e-3)


def test_mcnemar_equals_statsmodels():
    assert mcnemar_exact(7, 2) == pytest.approx(mcnemar([[5, 7], [2, 9]], exact=True).pvalue)


def test_a_difference_is_an_estimate_over_what_both_have():
    found = paired_difference({"a": 1, "b": 1, "c": 0}, {"a": 0, "b": 1, "d": 1}, confidence=0.975).estimate()
    assert (found.n, found.num_asked, found.coverage) == (2, 4, 0.5)
    assert (found.interval, found.num_clusters) == (Kind.T, 2)


def test_pairing_saves_twice_the_covariance():
    new, old = {str(i): float(i % 3) / 2 for i in range(30)}, {str(i): float(i % 3 + i % 2) / 4 for i in range(30)}
    found = paired_difference(new, old)
    both = np.cov(list(new.values()), list(old.values()))
    assert found.unpaired_se**2 - found.se**2 == pytest.approx(2 * both[0, 1] / 30)
    assert found.correlation == pytest.approx(np.corrcoef(list(new.values()), list(old.values()))[0, 1])


def test_the_p_value_is_the_paired_t_tests():
    new, old = {str(i): float(i % 3 != 0) for i in range(30)}, {str(i): float(i % 2 == 0) for i in range(30)}
    assert p_value(paired_difference(new, old)) == pytest.approx(ttest_rel([*new.values()], [*old.values()]).pvalue)


def test_where_nothing_differs_there_is_no_p_value_and_no_correlation():
    found = paired_difference({"a": 1, "b": 1}, {"a": 1, "b": 1})
    assert (p_value(found), found.correlation) == (None, None)
    assert paired_difference({"a": 1}, {"a": 0}).unpaired_se is None


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_row_2_a_score_that_is_no_number_is_refused_by_its_problem(value):
    with pytest.raises(ValueError, match="the score of b is"):
        paired_difference({"a": 1.0, "b": value}, {"a": 1.0, "b": 0.0})


def test_row_19_other_case_sets_are_no_comparison():
    with pytest.raises(NothingInCommon, match="0 problems in common: 1 scored on one side, 2 on the other"):
        paired_difference({"3": 1.0}, {"1": 1.0, "2": 0.0})


def test_families_on_missing_items_are_clustered_over_what_is_left():
    # c has no score on one side: families x (a, b) and y (d) are left
    new, old = {"a": 1, "b": 1, "c": None, "d": 0}, {"a": 0, "b": 0, "c": 1, "d": 0}
    found = paired_difference(new, old, clusters={"a": "x", "b": "x", "c": "z", "d": "y"})
    assert (found.num_pairs, found.num_clusters, found.dropped_old) == (3, 2, 1)
    assert found.clustered_se == pytest.approx(math.sqrt(2 * 2 * (2 / 3) ** 2) / 3)


def test_the_reference_table_of_mcnemar_equals_statsmodels():
    assert mcnemar_exact(121, 59) == pytest.approx(mcnemar([[101, 121], [59, 33]], exact=True).pvalue)
