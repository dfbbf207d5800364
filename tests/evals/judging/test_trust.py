import pytest

from evals.judging.canaries import Standing
from evals.judging.pairwise import PairVerdict
from evals.judging.trust import trust_in, verdict_of_tests, without_vote

LEFT, RIGHT, TIE, BOTH_BAD = PairVerdict.LEFT, PairVerdict.RIGHT, PairVerdict.TIE, PairVerdict.BOTH_BAD


@pytest.mark.parametrize(
    ("left", "right", "verdict"),
    [(1, 0, LEFT), (0, 1, RIGHT), (1, 1, TIE), (0, 0, BOTH_BAD), (None, 1, None), (1, None, None)],
)
def test_tests_have_a_verdict_on_a_pair_too(left, right, verdict):
    assert verdict_of_tests(left, right) == verdict


def test_a_judge_that_mostly_agrees_earns_a_vote():
    trust = trust_in([(LEFT, LEFT)] * 12 + [(RIGHT, RIGHT)] * 12 + [(LEFT, RIGHT)] * 2)
    assert trust.has_vote
    assert trust.sentence.startswith("agrees with the tests on 24 of 26 pairs, kappa 0.85 [")


def test_a_judge_that_always_says_left_agrees_by_chance_only():
    trust = trust_in([(LEFT, LEFT)] * 15 + [(LEFT, RIGHT)] * 15)
    assert not trust.has_vote
    assert "not above chance, no vote" in trust.sentence
    assert trust.is_paused and trust.sentence.endswith("because it agrees no better than chance would")


def test_a_few_lucky_pairs_earn_no_vote():
    trust = trust_in([(LEFT, LEFT)] * 5 + [(RIGHT, RIGHT)] * 5)
    assert not trust.has_vote
    assert "fewer than 20 pairs, no vote" in trust.sentence


def test_invalid_judgements_are_counted_beside_the_agreement():
    trust = trust_in([(LEFT, LEFT), (PairVerdict.INVALID, LEFT), (PairVerdict.ERROR, RIGHT), (RIGHT, None)])
    assert (trust.agreement.n, trust.num_undecided) == (1, 3)


def test_nothing_judged_is_no_vote():
    assert not trust_in([]).has_vote


def test_neither_side_better_is_one_category():
    assert trust_in([(TIE, BOTH_BAD)] * 3 + [(LEFT, RIGHT)]).agreement.agreement.successes == 3


GOOD = [(LEFT, LEFT)] * 12 + [(RIGHT, RIGHT)] * 12


def test_a_judge_that_failed_its_canaries_is_paused_however_well_it_agrees():
    trust = trust_in(GOOD, canaries=Standing.FAILED)
    assert (trust.has_vote, trust.is_paused) == (False, True)
    assert trust.sentence.endswith("paused for rewards and gates, because it failed its canaries")


@pytest.mark.parametrize("standing", [Standing.PASSED, Standing.NOT_RUN, Standing.INCONCLUSIVE])
def test_canaries_that_found_nothing_leave_the_vote_to_the_agreement(standing):
    trust = trust_in(GOOD, canaries=standing)
    assert (trust.has_vote, trust.is_paused) == (True, False)


def test_few_pairs_and_an_undefined_kappa_say_nothing_against_a_judge():
    assert not trust_in([(LEFT, RIGHT)] * 10).is_paused
    assert not trust_in([(LEFT, LEFT)] * 40).is_paused


def test_a_policy_that_judges_itself_has_no_vote_however_well_it_agrees():
    trust = without_vote(trust_in(GOOD))
    assert not trust.has_vote and trust.sentence.endswith("judges its own policy: no vote")


def test_people_give_a_vote_too_and_take_it():
    assert trust_in([], people=GOOD).has_vote
    against = trust_in(GOOD, people=[(LEFT, LEFT)] * 10 + [(LEFT, RIGHT)] * 12 + [(RIGHT, LEFT)] * 2)
    assert (against.has_vote, against.is_paused) == (False, True)


def test_a_judge_that_has_moved_on_its_anchors_is_paused():
    trust = trust_in(GOOD, is_unstable=True)
    assert (trust.has_vote, trust.is_paused) == (False, True) and "its anchors" in trust.sentence
