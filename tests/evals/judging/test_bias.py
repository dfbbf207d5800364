import pytest

from evals.judging.bias import (
    family_of,
    length_bias_of_marks,
    length_bias_of_pairs,
    self_preference_of_marks,
    self_preference_of_pairs,
)


def test_a_judge_that_always_takes_the_longer_side_has_a_slope_and_a_share_of_1():
    lengths = [(100, 50), (50, 100), (300, 10), (10, 300)] * 5
    found = length_bias_of_pairs(lengths, [1.0, 0.0] * 10)
    assert (found.longer.successes, found.longer.n) == (20, 20) and found.slope.value > 0.4


def test_a_judge_that_does_not_look_at_length_has_a_slope_whose_interval_holds_0():
    lengths = [(100, 50), (50, 100)] * 10
    found = length_bias_of_pairs(lengths, [1.0, 1.0, 0.0, 0.0] * 5)
    assert found.slope.low < 0 < found.slope.high and found.slope.value == pytest.approx(0)
    assert found.longer.share == 0.5


def test_ties_and_equal_lengths_say_nothing_about_the_longer_side():
    assert length_bias_of_pairs([(5, 5), (9, 1)], [1.0, 0.5]).longer.n == 0


def test_too_few_or_equally_long_answers_make_no_slope():
    assert length_bias_of_marks([10] * 50, [0.5] * 50).slope.value is None
    assert length_bias_of_marks([1, 2, 3], [0.1, 0.2, 0.3]).slope.value is None
    assert length_bias_of_marks([], []).slope.value is None


def test_the_slope_of_marks_is_least_squares_on_tanh_of_the_length():
    # the sd of ten 100s and ten 300s is 102.598, x = +-tanh(100 / 102.598) = +-.75075; marks .2, .8 -> .6 / 1.5015
    found = length_bias_of_marks([100, 300] * 10, [0.2, 0.8] * 10)
    assert found.slope.value == pytest.approx(0.39960, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("editor@3", "editor"),
        ("openai/gpt-5-mini", "gpt"),
        ("claude-opus-4", "claude"),
        ("gpt-4o", "gpt"),
        ("7b", "7b"),
    ],
)
def test_a_family_is_the_policy_or_the_first_word(name, family):
    assert family_of(name) == family


def test_self_preference_counts_pairs_of_one_own_side_and_stands_beside_the_tests():
    sides = [("gpt-5", "editor@2"), ("editor@2", "gpt-5"), ("gpt-5", "gpt-4"), ("editor@1", "editor@2"), ("gpt-5", "x")]
    found = self_preference_of_pairs("gpt-5-mini", sides, [1.0, 0.0, 1.0, 1.0, 0.5], [0.0, 0.0, None, None, None])
    assert (found.own.successes, found.own.n) == (2, 2)
    assert (found.own_by_tests.successes, found.own_by_tests.n) == (1, 2)


def test_marks_of_the_own_family_stand_beside_those_of_others():
    found = self_preference_of_marks("gpt-5", ["gpt-4", "editor@1", "editor@2"], [1.0, 0.25, 0.75])
    assert (found.own_mark.value, found.own_mark.n, found.other_mark.value) == (1.0, 1, 0.5)
