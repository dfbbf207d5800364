import pytest

from evals.judging.canaries import Standing
from evals.judging.pairwise import PairVerdict
from evals.judging.trust import trust_in
from evals.judging.vote import why_no_vote

LEFT, RIGHT = PairVerdict.LEFT, PairVerdict.RIGHT
AGREES = [(LEFT, LEFT)] * 12 + [(RIGHT, RIGHT)] * 12
BY_CHANCE = [(LEFT, LEFT)] * 15 + [(LEFT, RIGHT)] * 15


@pytest.mark.parametrize(
    ("pairs", "canaries", "itself", "reason"),
    [
        (AGREES, Standing.PASSED, False, ""),
        (AGREES, Standing.PASSED, True, "a policy may not judge itself"),
        (AGREES, Standing.NOT_RUN, False, "its canaries were not run"),
        (AGREES, Standing.INCONCLUSIVE, False, "its canaries could not all be judged"),
        (AGREES, Standing.FAILED, False, "it failed its canaries"),
        (AGREES[6:18], Standing.PASSED, False, "fewer than 20 pairs"),
        (BY_CHANCE, Standing.PASSED, False, "no better than chance"),
        ([], Standing.PASSED, False, "no pair yet"),
    ],
)
def test_a_judge_votes_only_when_it_is_healthy_and_else_the_reason_is_said(pairs, canaries, itself, reason):
    found = why_no_vote(trust_in(pairs, canaries=canaries), canaries=canaries, judges_itself=itself)
    assert found == reason if not reason else reason in found


def test_a_judge_that_has_drifted_from_its_anchors_has_no_vote():
    found = why_no_vote(trust_in(AGREES, is_unstable=True), canaries=Standing.PASSED, judges_itself=False)
    assert "no longer says the same about its anchors" in found
