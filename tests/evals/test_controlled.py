"""Imported votes with the taste for style, or for length, taken out."""

import pytest

from evals.controlled import StyledVote, at_equal_length, without_style


def vote(left, right, result, *, left_length=100.0, right_length=100.0, **more):
    fields = {"preference": result, "cluster": None, "left_style": {"length": left_length}}
    return StyledVote(
        **{"left": left, "right": right, "result": result, "right_style": {"length": right_length}} | fields | more
    )


def long_against_short(num_long, won):
    """a against b, the longer one winning `won` of 8 times, whoever it is."""
    return [
        vote(
            "a", "b", float((place % 8 < won) == is_a_long), cluster=place,
            left_length=300.0 if is_a_long else 100.0, right_length=100.0 if is_a_long else 300.0,
        )
        for place in range(40)
        for is_a_long in (place < num_long,)
    ]  # fmt: skip


def test_who_wins_only_by_length_is_no_stronger_without_it():
    votes = long_against_short(32, won=6)  # a is the longer one in 32 of 40, and wins 26
    found = without_style(votes)
    assert found.strengths["a"].value == pytest.approx(1000, abs=10)
    assert found.style["length"].value > 0 and found.style["length"].low > 0
    assert (found.n, found.ridge, found.strengths["a"].interval) == (40, 0.5, "sandwich")


def test_votes_whose_answers_look_alike_have_no_style_to_take_out():
    assert without_style([vote("a", "b", 1.0), vote("a", "b", 0.0)]) is None
    assert without_style([]) is None


def test_every_side_is_measured_against_the_baseline_that_is_always_left():
    votes = [
        vote("base", name, 0.0, preference=preference, left_length=200.0, right_length=length, cluster=place)
        for name in ("m", "n")
        for place, (preference, length) in enumerate([(0.1, 400.0), (0.2, 300.0), (0.7, 100.0), (0.4, 250.0)])
    ]
    first, second = at_equal_length(votes)
    assert (first.name, second.name, first.baseline) == ("m", "n", "base")
    assert first.raw.value == pytest.approx(1 - 1.4 / 4) and first.raw.n == 4
    assert first.controlled.value < first.raw.value, "longer answers were preferred"
    assert (first.mean_length, first.mean_baseline_length) == (262.5, 200.0)


def test_without_a_baseline_there_is_no_rate_at_equal_length():
    assert at_equal_length([vote("a", "b", 1.0), vote("b", "a", 1.0)]) == []
