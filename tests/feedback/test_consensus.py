"""What several reviewers' answers come to."""

import pytest

from feedback.consensus import Vote, settle


def override(reward: float) -> Vote:
    return Vote(resolution="overridden", reward=reward)


FINE, EXCLUDED = Vote(resolution="fine"), Vote(resolution="excluded")


@pytest.mark.parametrize(
    ("votes", "verdict"),
    [
        ([FINE], FINE),
        ([FINE, FINE, EXCLUDED], FINE),
        ([FINE, EXCLUDED], EXCLUDED),
        ([override(-1), FINE], override(-1)),
        ([override(-1), EXCLUDED], EXCLUDED),
        ([override(-1), override(0), FINE], override(-0.5)),
        ([override(0.0)], override(0.0)),
        ([override(-1), override(1), override(0.25)], override(0.25)),
    ],
)
def test_the_majority_decides_a_tie_is_careful_and_overrides_meet_in_the_middle(votes, verdict):
    assert settle(votes) == verdict == settle(votes[::-1])


def test_no_answer_settles_nothing():
    with pytest.raises(ValueError, match="settles nothing"):
        settle([])
