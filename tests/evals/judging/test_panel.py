import pytest

from evals.judging.pairwise import PairVerdict
from evals.judging.panel import panel_mark, panel_verdict


@pytest.mark.parametrize(
    ("verdicts", "verdict", "votes", "agreeing"),
    [
        (["left", "left", "right"], "left", 3, 2),
        (["left", "left", "tie", "invalid"], "left", 3, 2),
        (["left", "right"], "tie", 2, 0),
        (["left", "right", "tie"], "tie", 3, 1),
        (["left", "invalid", "error"], "invalid", 1, 0),
        (["error", "error"], "invalid", 0, 0),
        ([], "invalid", 0, 0),
        (["both_bad", "both_bad"], "both_bad", 2, 2),
    ],
)
def test_more_than_half_of_those_who_voted_decide(verdicts, verdict, votes, agreeing):
    found = panel_verdict([PairVerdict(one) for one in verdicts])
    assert (found.verdict, found.num_votes, found.num_agreeing) == (verdict, votes, agreeing)
    assert found.num_abstained == len(verdicts) - votes


def test_a_mark_is_the_mean_of_those_who_gave_one():
    found = panel_mark([0.8, 0.6, None])
    assert (found.value, found.num_votes, found.num_abstained) == (pytest.approx(0.7), 2, 1)
    assert found.spread == pytest.approx(0.2)


def test_below_the_quorum_there_is_no_mark_and_never_0():
    assert panel_mark([0.8, None, None]).value is None
    assert panel_mark([]).value is None
    assert "1 of 3 judges gave a mark, 2 are needed" in panel_mark([0.8, None, None]).reason


def test_judges_who_quarrel_abstain_together():
    found = panel_mark([0.0, 1.0, 1.0])
    assert found.value is None and "1.00 apart" in found.reason
