import json
from dataclasses import replace
from random import Random

import pytest

from rl_online.gate import Arm, Evidence, Half, Kind, Limits, Stage, decide


def half(name="seen families", *, candidate, serving, first=None, family=lambda key: f"family {int(key) % 5}"):
    """Score lists become problems "0", "1", ...; the first checkpoint answers like the serving one unless given."""
    as_scores = lambda values: {str(index): value for index, value in enumerate(values)}  # noqa: E731
    asked = {str(index): family(str(index)) for index in range(max(len(candidate), len(serving)))}
    baselines = (
        Arm(role="serving", checkpoint="editor@2", scores=as_scores(serving)),
        Arm(role="first", checkpoint="editor@1", scores=as_scores(serving if first is None else first)),
    )
    return Half(name=name, families=asked, candidate=as_scores(candidate), baselines=baselines)


def judged(*halves, limits=None, **changes):
    return decide(Evidence(candidate="editor@3", halves=halves, **changes), limits)


SAME = [1.0, 0.0] * 50
BETTER = [1.0] * 50 + [1.0, 0.0] * 25
WORSE = [0.0] * 30 + [1.0, 0.0] * 35


def test_equal_answers_promote_by_the_exact_bound():
    # 100 equal answers: lower bound -2.95 points, above -10
    decision = judged(half(candidate=SAME, serving=SAME))
    assert decision.kind is Kind.PROMOTE
    assert "exact lower 95% bound −3.0 above −10.0: not inferior" in decision.reasons[0]


def test_better_answers_promote():
    assert judged(half(candidate=BETTER, serving=SAME)).kind is Kind.PROMOTE


def test_a_loss_that_is_not_ruled_out_holds_with_its_numbers():
    # 15 of 100 lost: mean -15, se 3.59, lower -20.96
    decision = judged(half(candidate=WORSE, serving=SAME))
    assert decision.kind is Kind.HOLD
    assert decision.reasons[0] == (
        "seen families against serving editor@2: −15.0 points on 100 problems (0 better, 15 worse, 85 equal), "
        "lower 95% bound −21.0 not above −10.0: inferiority is not ruled out"
    )


def test_one_bad_half_is_enough_to_hold():
    decision = judged(half(candidate=BETTER, serving=SAME), half("unseen families", candidate=WORSE, serving=SAME))
    assert decision.kind is Kind.HOLD
    assert all("unseen families" in reason for reason in decision.reasons)


def test_small_losses_cannot_add_up_against_the_first_checkpoint():
    decision = judged(half(candidate=SAME, serving=SAME, first=BETTER))
    assert decision.kind is Kind.HOLD
    assert [reason.split(":")[0] for reason in decision.reasons] == ["seen families against first editor@1"]


def test_the_bound_must_lie_above_the_margin_and_not_on_it():
    limits = Limits(margin=1 - 0.05 ** (1 / 100))
    assert judged(half(candidate=SAME, serving=SAME), limits=limits).kind is Kind.HOLD


def test_no_common_problem_is_refused():
    nothing = [None] * 40
    decision = judged(half(candidate=nothing, serving=[1.0] * 40), limits=Limits(max_rounds=1))
    assert decision.kind is Kind.HOLD
    assert "refused, 0 problems in common out of 40 asked" in decision.reasons[0]


def test_no_evidence_at_all_is_refused():
    assert judged().reasons == ("refused: there is no half with a baseline to compare with",)


def test_too_many_unscored_answers_ask_again_and_finally_hold():
    gappy = [None] * 10 + SAME[10:]
    first_round = judged(half(candidate=gappy, serving=SAME))
    assert first_round.kind is Kind.EXTEND
    assert "10 of 100 problems are unscored on one side or both, coverage 90% is below 95%" in first_round.reasons[0]
    last_round = judged(half(candidate=gappy, serving=SAME), rounds=3)
    assert (last_round.kind, last_round.reasons[-1]) == (Kind.HOLD, "asked 3 times, which is the limit")


def test_answers_that_can_never_be_had_hold_at_once_with_their_reason():
    gappy = [None] * 10 + SAME[10:]
    said = "10 answers of editor@3 are refused: status 400: too long"
    decision = judged(half(candidate=gappy, serving=SAME), refusals=(said,))
    assert (decision.kind, decision.reasons[-1]) == (Kind.HOLD, said)


def test_unscored_answers_within_the_limit_are_left_out_and_counted():
    decision = judged(half(candidate=[None, *SAME[1:]], serving=SAME))
    assert decision.kind is Kind.PROMOTE
    assert (decision.findings[0].num_common, decision.findings[0].num_unscored) == (99, 1)


def test_a_handful_of_problems_cannot_promote():
    decision = judged(half(candidate=[1.0] * 20, serving=[0.0] * 20))
    assert (decision.kind, "at least 30" in decision.reasons[0]) == (Kind.EXTEND, True)


def test_answers_to_problems_outside_the_half_are_ignored():
    asked = half(candidate=SAME, serving=SAME)
    stray = replace(asked, candidate={**asked.candidate, "x": 1.0})
    assert judged(stray).findings[0].num_common == 100


def test_a_canary_comes_first_where_the_limits_want_one():
    limits = Limits(canary_share=0.1)
    assert judged(half(candidate=SAME, serving=SAME), limits=limits).kind is Kind.CANARY
    assert judged(half(candidate=SAME, serving=SAME), limits=limits, stage=Stage.CANARY).kind is Kind.PROMOTE


def test_only_a_certain_loss_rolls_a_serving_checkpoint_back():
    terrible = half(candidate=[0.0] * 100, serving=[1.0] * 70 + [0.0] * 30)
    assert judged(terrible, stage=Stage.SERVING).kind is Kind.ROLL_BACK
    assert judged(terrible).kind is Kind.HOLD
    assert judged(half(candidate=WORSE, serving=SAME), stage=Stage.SERVING).kind is Kind.HOLD


def test_a_judge_is_shown_and_has_no_vote():
    raving = {"win_rate": 1.0, "has_vote": True}
    decision = judged(half(candidate=WORSE, serving=SAME), judge=raving)
    assert decision.kind is Kind.HOLD
    assert decision.to_json()["evidence"]["judge"] == raving


def test_the_report_is_json_and_carries_what_it_prints():
    report = json.loads(json.dumps(judged(half(candidate=SAME, serving=SAME)).to_json(), allow_nan=False))
    finding = report["evidence"]["findings"][0]
    assert (report["decision"], report["evidence"]["test"]) == ("promote", "non-inferiority")
    assert finding["difference"]["clustered_se"] == pytest.approx(0.0)
    assert (finding["difference"]["bound"], finding["coverage"]) == ("exact", 1.0)


def test_a_loss_as_large_as_the_margin_is_rarely_promoted():
    # 100 problems, 15 % lost and 5 % won: a true difference of -10 points, so at most about 5 % may pass
    random = Random(0)
    draw = lambda: random.choices([(0.0, 1.0), (1.0, 0.0), (1.0, 1.0)], weights=[15, 5, 80])[0]  # noqa: E731
    promoted = 0
    for _ in range(1000):
        answers = [draw() for _ in range(100)]
        candidate, serving = [pair[0] for pair in answers], [pair[1] for pair in answers]
        promoted += judged(half(candidate=candidate, serving=serving)).kind is Kind.PROMOTE
    assert promoted / 1000 < 0.07
