"""A judge before the gate: a vote only where the limits ask for it and the judge is healthy."""

import json
from dataclasses import replace

import pytest

from rl_online.gate.decision import Kind, decide
from rl_online.gate.evidence import Arm, Evidence, Half, JudgedWins
from rl_online.gate.limits import Limits

SAME = {str(number): float(number % 2) for number in range(100)}
WORSE = SAME | {str(number): 0.0 for number in range(30)}
HEALTHY = JudgedWins(judge="strict (judge-1)", num_decided=40, num_undecided=2, rate=0.6, low=0.446, high=0.737)
SICK = replace(HEALTHY, no_vote="it failed its canaries")
ASKED = Limits(judged=0.4)


def judged(wins, *, candidate=SAME, limits=ASKED):
    arm = Arm(role="serving", checkpoint="editor@2", scores=SAME)
    half = Half(name="all problems", families=dict.fromkeys(SAME, "f"), candidate=candidate, baselines=(arm,))
    return decide(Evidence(candidate="editor@3", halves=(half,), wins=wins), limits)


def test_a_healthy_judge_passes_when_the_lower_end_lies_above_the_limit():
    decision = judged(HEALTHY)
    assert decision.kind is Kind.PROMOTE
    assert decision.reasons[-1] == (
        "judge strict (judge-1): win rate 60.0 % [44.6 %, 73.7 %] on 40 pairs in both orders, lower end above 40.0 %"
    )


def test_a_healthy_judge_holds_what_the_tests_would_have_promoted():
    decision = judged(HEALTHY, limits=Limits(judged=0.45))
    assert decision.kind is Kind.HOLD and decision.reasons[-1].endswith("lower end not above 45.0 %")
    assert judged(HEALTHY, limits=Limits(judged=0.446)).kind is Kind.HOLD


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_an_unhealthy_judge_is_shown_with_the_reason_and_never_decides(rate):
    says = replace(SICK, rate=rate, low=rate, high=rate)
    passed, failed = judged(says), judged(says, candidate=WORSE)
    assert (passed.kind, failed.kind) == (Kind.PROMOTE, Kind.HOLD)
    assert passed.reasons[-1].startswith("judge strict (judge-1) has no vote, it failed its canaries: win rate")
    shown = json.loads(json.dumps(failed.to_json(), allow_nan=False))["evidence"]["vote"]
    assert (shown["has_vote"], shown["at_least"]) == (False, 0.4)


def test_a_judge_cannot_save_what_the_tests_hold():
    assert judged(replace(HEALTHY, rate=1.0, low=0.9, high=1.0), candidate=WORSE).kind is Kind.HOLD


def test_without_a_limit_a_judge_has_no_say():
    losing = replace(HEALTHY, rate=0.0, low=0.0, high=0.1)
    decision = judged(losing, limits=Limits())
    assert (decision.kind, decision.vote) == (Kind.PROMOTE, None)


def test_a_vote_that_was_asked_for_and_not_had_holds():
    undecided = replace(HEALTHY, num_decided=0, num_undecided=10, rate=None, low=None, high=None)
    assert judged(undecided).reasons[-1] == "judge strict (judge-1): none of 10 pairs is decided, so nothing is shown"
    assert judged(undecided).kind is Kind.HOLD
    assert judged(None).reasons == ("refused: the limits ask for a judge's vote, and nothing was judged",)


def test_a_limit_that_is_no_share_is_refused():
    with pytest.raises(ValueError, match=r"judged is 1\.4; give a share"):
        Limits(judged=1.4)
