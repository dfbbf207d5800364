import pytest

from evals.statistics.preferences import preference_rate


def test_row_20_null_preferences_are_counted_and_asked_again():
    found = preference_rate([1, 0, None, 1, 1, None, 0, 0.5, 1, None])
    assert (found.rate.n, found.rate.coverage, found.to_ask_again) == (7, 0.7, (2, 5, 9))
    assert found.rate.value == pytest.approx(4.5 / 7)


def test_row_20_no_preference_at_all_is_undefined_and_not_nan():
    found = preference_rate([None, None])
    assert (found.rate.value, found.discrete.value, found.rate.undefined) == (None, None, "none of 2 is scored")


def test_the_discrete_rate_rounds_each_preference():
    found = preference_rate([1.0, 0.9, 0.5, None])
    assert (found.rate.value, found.discrete.value) == (pytest.approx(0.8), pytest.approx(2.5 / 3))
    assert (found.wins, found.ties, found.losses) == (2, 1, 0)


def test_a_model_against_itself_is_half_with_nothing_known_about_the_error():
    # gpt4_1106_preview against itself: 805 draws
    found = preference_rate([0.5] * 805)
    assert (found.rate.value, found.rate.se, found.rate.low, found.ties) == (0.5, 0.0, None, 805)


def test_preferences_as_written_in_files_are_refused():
    with pytest.raises(ValueError, match="take 1 off"):
        preference_rate([1.7])
