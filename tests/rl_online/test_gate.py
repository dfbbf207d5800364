import json
from dataclasses import replace
from random import Random

import pytest

from rl_online.gate.decision import Kind, decide
from rl_online.gate.evidence import Arm, Evidence, Guard, Half, Stage
from rl_online.gate.limits import Limits


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
    # 15 of 100 lost: mean -15, se 3.589, lower -20.96; 2.8016 * 3.589 = 10.05
    decision = judged(half(candidate=WORSE, serving=SAME))
    assert decision.kind is Kind.HOLD
    assert decision.reasons[0] == (
        "seen families against serving editor@2: −15.0 points on 100 problems (0 better, 15 worse, 85 equal), "
        "lower 95% bound −21.0 not above −10.0: inferiority is not ruled out; "
        "100 problems cannot see less than 10.1 points"
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


def test_row_19_no_common_problem_is_refused():
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


def test_a_half_may_have_a_margin_of_its_own():
    # lower bound -21: inside a margin of 25 points, outside of the usual 10
    bad = half("chat", candidate=WORSE, serving=SAME)
    assert judged(bad).kind is Kind.HOLD
    decision = judged(bad, limits=Limits(margins={"chat": 0.25}))
    assert decision.kind is Kind.PROMOTE
    assert decision.reasons[0].endswith("lower 95% bound −21.0 above −25.0: not inferior")


def test_a_target_that_was_not_measured_is_refused_by_name():
    same = half(candidate=SAME, serving=SAME)
    for limits in (Limits(superior_on=["humaneval"]), Limits(margins={"humaneval": 0.05})):
        decision = judged(same, limits=limits)
        assert decision.kind is Kind.HOLD
        assert decision.reasons == ("refused: the limits name 'humaneval', which was not measured",)


def test_superiority_on_a_target_is_demanded_against_the_serving_checkpoint():
    target = Limits(superior_on=["seen families"])
    held = judged(half(candidate=SAME, serving=SAME), limits=target)
    assert held.kind is Kind.HOLD
    assert held.reasons == (
        "seen families against serving editor@2: +0.0 points, better is not shown (p 1.000 by Holm over 1)",
    )
    assert judged(half(candidate=BETTER, serving=SAME), limits=target).kind is Kind.PROMOTE


def test_several_targets_share_the_error_by_holm():
    # 3 of 100 better: t = 1.7497 with 99 degrees, p .0416 alone; .0832 as one of two of the same
    slightly = [1.0] * 6 + SAME[6:]
    one = half("one", candidate=slightly, serving=SAME)
    other = half("other", candidate=slightly, serving=SAME)
    assert judged(one, limits=Limits(superior_on=["one"])).kind is Kind.PROMOTE
    decision = judged(one, other, limits=Limits(superior_on=["one", "other"]))
    assert decision.kind is Kind.HOLD
    assert "p .083 by Holm over 2" in decision.reasons[0]


def test_few_problems_say_how_little_they_can_see():
    # 40 problems, 4 lost: sd .3038, se .0480, lower -18.1; what 40 can see: 2.8016 * .0480 = 13.5 points
    few = [0.0] * 8 + [1.0, 0.0] * 16
    decision = judged(half(candidate=few, serving=[1.0, 0.0] * 20))
    assert decision.reasons[0].endswith("inferiority is not ruled out; 40 problems cannot see less than 13.5 points")
    assert decision.findings[0].detectable == pytest.approx(0.1346, abs=1e-4)


def test_rolling_back_needs_a_loss_that_stands_after_holm():
    # 9 of 40 lost against a margin of 10: p .0355 alone, more than .05 among four findings
    lost = [0.0] * 18 + [1.0, 0.0] * 11
    alone = Half(
        name="seen families",
        families={str(key): "f" for key in range(40)},
        candidate={str(key): value for key, value in enumerate(lost)},
        baselines=(
            Arm(role="serving", checkpoint="editor@2", scores={str(k): v for k, v in enumerate([1.0, 0.0] * 20)}),
        ),
    )
    fine = replace(alone, name="unseen families", candidate=alone.baselines[0].scores)
    assert judged(alone, stage=Stage.SERVING).kind is Kind.ROLL_BACK
    assert judged(alone, fine, stage=Stage.SERVING).kind is not Kind.ROLL_BACK


def test_p_values_where_every_pair_is_alike_are_the_exact_ones():
    # 100 equal pairs: not below -10 points, since then a tenth would have to be lost: .9^100; not above 0: surely
    finding = judged(half(candidate=SAME, serving=SAME)).findings[0]
    assert finding.p_better == 1.0 and finding.p_worse == 1.0
    lost = judged(half(candidate=[0.0] * 100, serving=[1.0] * 100)).findings[0]
    assert lost.p_worse == pytest.approx(0.0) and lost.p_better == 1.0


def guard(name, new, old, **fields):
    as_values = lambda values: {str(index): float(value) for index, value in enumerate(values)}  # noqa: E731
    return Guard(name=name, candidate=as_values(new), serving=as_values(old), **fields)


LONG = guard("output tokens", [150, 160, 140, 150] * 10, [100, 110, 90, 100] * 10, relative=True)


def test_a_guard_without_a_limit_is_shown_and_has_no_say():
    decision = judged(half(candidate=SAME, serving=SAME), guards=(LONG,))
    assert decision.kind is Kind.PROMOTE
    (found,) = decision.to_json()["evidence"]["guards"]
    assert (found["rise"], found["at_most"], found["mean_new"], found["n"]) == (pytest.approx(0.5), None, 150.0, 40)


def test_a_guard_beyond_its_limit_holds_though_the_answers_are_better():
    limits = Limits(guards={"output tokens": 0.25})
    decision = judged(half(candidate=BETTER, serving=SAME), guards=(LONG,), limits=limits)
    assert decision.kind is Kind.HOLD
    assert decision.reasons == (
        "output tokens: +50.0 % of the serving mean on 40 problems, upper 95% bound +50.0 % not below +25.0 %",
    )


def test_a_guard_within_its_limit_is_among_the_reasons():
    limits = Limits(guards={"empty answers": 0.1})
    rare = guard("empty answers", [1] + [0] * 99, [0] * 100)
    # mean .01, se .01, t(99) 1.6604: upper .0266
    decision = judged(half(candidate=SAME, serving=SAME), guards=(rare,), limits=limits)
    assert decision.kind is Kind.PROMOTE
    assert decision.reasons[-1] == (
        "empty answers: +0.01 per answer on 100 problems, upper 95% bound +0.0266 below +0.1"
    )


def test_a_guard_that_was_not_measured_is_refused():
    decision = judged(half(candidate=SAME, serving=SAME), limits=Limits(guards={"latency ms": 0.1}))
    assert decision.reasons == ("refused: the limits guard 'latency ms', which was not measured",)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"margin": 1.5}, "margin is 1.5; give a share"),
        ({"margins": {"chat": -0.1}}, "margins.chat is -0.1"),
        ({"confidence": 0.2}, "confidence is 0.2"),
        ({"guards": {"latency ms": float("nan")}}, "guards.latency ms is nan"),
    ],
)
def test_limits_that_cannot_be_are_refused_by_name(fields, said):
    with pytest.raises(ValueError, match=said):
        Limits(**fields)
