import pytest
from scipy.stats import binomtest

from evals.statistics.estimate import Kind
from evals.statistics.interleaving import interleaved, team_draft


def test_a_query_is_won_by_the_side_with_more_credit_and_ties_are_dropped_and_told():
    found = interleaved([(2, 1), (0, 0), (1, 0), (0, 3)])
    assert (found.wins_a, found.wins_b, found.ties) == (2, 1, 1)
    assert (found.share_a.value, found.share_a.coverage) == (pytest.approx(2 / 3), 0.75)
    assert found.share_a.interval == Kind.WILSON


def test_the_p_value_is_the_exact_sign_test():
    found = interleaved([(1, 0)] * 15 + [(0, 1)] * 4 + [(1, 1)] * 30)
    assert found.p_value == pytest.approx(binomtest(15, 19).pvalue)


def test_only_ties_show_nothing():
    found = interleaved([(1, 1), (0, 0)])
    assert (found.share_a.value, found.p_value, found.ties) == (None, None, 2)


def test_negative_and_unknown_credit_is_refused():
    with pytest.raises(ValueError, match="query 0 has credits"):
        interleaved([(-1, 0)])


def test_teams_pick_in_turns_and_show_nothing_twice():
    tosses = iter([True, False, True])
    shown = team_draft(["x", "y", "z"], ["x", "w", "y"], length=5, toss=lambda: next(tosses))
    assert shown == [("x", "a"), ("w", "b"), ("y", "b"), ("z", "a")]


def test_a_draft_ends_at_its_length():
    assert team_draft("abc", "def", length=3, toss=lambda: False) == [("d", "b"), ("a", "a"), ("e", "b")]
