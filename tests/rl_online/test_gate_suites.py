"""Several suites before one gate: names, margins, targets, coverage, and what each can see."""

import csv
from collections import defaultdict
from dataclasses import replace

import pytest

from rl_online.gate.decision import Kind, decide
from rl_online.gate.evidence import Arm, Evidence, Half, Stage
from rl_online.gate.limits import Limits
from rl_online.gate.parts import belongs, parts_of
from rl_online.gate.suites import suites_from

SAME = [1.0, 0.0] * 50
BETTER = [1.0] * 50 + [1.0, 0.0] * 25
WORSE = [0.0] * 30 + [1.0, 0.0] * 35
GPT_5, SONNET_4 = "20250924_droid_gpt-5", "20250923_droid_claude-4-sonnet"
SUITES = ("gate@1", "humaneval@1")


def half(suite, candidate, serving=SAME, name="all problems"):
    keys = [str(number) for number in range(len(candidate))]
    arm = Arm(role="serving", checkpoint="editor@2", scores=dict(zip(keys, serving, strict=True)))
    return Half(
        suite=suite, name=name, families=dict.fromkeys(keys, "f"), candidate=dict(zip(keys, candidate, strict=True)),
        baselines=(arm,),
    )  # fmt: skip


def judged(*halves, suites=SUITES, limits=None, **changes):
    return decide(Evidence(candidate="editor@3", halves=halves, suites=suites, **changes), limits)


def test_one_suite_that_lost_holds_and_every_reason_says_which():
    decision = judged(half("gate@1", SAME), half("humaneval@1", WORSE))
    assert decision.kind is Kind.HOLD
    assert [reason.split(" against")[0] for reason in decision.reasons] == ["humaneval@1: all problems"]
    assert judged(half("gate@1", SAME), half("humaneval@1", SAME)).kind is Kind.PROMOTE


@pytest.mark.parametrize(
    ("margins", "passes"),
    [
        ({"humaneval@1": 0.25}, [True, True]),  # of a suite, for all its parts
        ({"humaneval": 0.25, "humaneval: seen": 0.1}, [False, True]),  # the more exact name holds
        ({"seen": 0.25}, [True, False]),  # the part of that name in every suite
        ({"gate@1": 0.25}, [False, False]),
    ],
)
def test_a_margin_is_of_a_suite_or_of_a_part_of_it_and_the_more_exact_one_holds(margins, passes):
    # lower bound −21.0 on both halves
    lost = half("humaneval@1", WORSE, name="seen"), half("humaneval@1", WORSE, name="unseen")
    decision = judged(half("gate@1", SAME, name="seen"), *lost, limits=Limits(margins=margins))
    assert [finding.passes for finding in decision.findings if finding.suite == "humaneval@1"] == passes


def test_better_on_a_suite_and_on_a_slice_share_the_error_by_holm_across_suites():
    # 3 of 100 better: p .0416 alone, .0832 as one of two of the same
    slightly = [1.0] * 6 + SAME[6:]
    whole, part = half("gate@1", slightly), half("humaneval@1", slightly, name="family=add")
    one = judged(whole, part, limits=Limits(superior_on=["gate"]))
    assert one.kind is Kind.PROMOTE
    assert one.reasons[-1].endswith("+3.0 points, better is shown (p .042 by Holm over 1)")
    both = judged(whole, part, limits=Limits(superior_on=["gate", "humaneval: family=add"]))
    assert both.kind is Kind.HOLD
    assert [(target.title, target.passes, round(target.adjusted, 3)) for target in both.targets] == [
        ("gate@1: all problems", False, 0.083),
        ("humaneval@1: family=add", False, 0.083),
    ]


def test_a_certain_loss_on_one_suite_must_stand_after_holm_over_all_of_them():
    # 9 of 40 lost against a margin of 10: p .0355 alone, more than .05 beside another suite
    lost = half("gate@1", [0.0] * 18 + [1.0, 0.0] * 11, [1.0, 0.0] * 20)
    fine = half("humaneval@1", SAME)
    assert judged(lost, suites=("gate@1",), stage=Stage.SERVING).kind is Kind.ROLL_BACK
    assert judged(lost, fine, stage=Stage.SERVING).kind is not Kind.ROLL_BACK


def test_a_suite_on_which_the_case_sets_do_not_meet_is_refused_by_name():
    apart = half("humaneval@1", [1.0] * 40 + [None] * 40, [None] * 40 + [1.0] * 40)
    decision = judged(half("gate@1", SAME), apart, rounds=3)
    assert decision.kind is Kind.HOLD
    assert (
        "humaneval@1: all problems against serving editor@2: refused, 0 problems in common out of 80 asked"
        in (decision.reasons[0])
    )
    assert judged(half("gate@1", SAME)).reasons == ("refused: humaneval@1 has no problem to compare on",)


def test_coverage_is_that_of_each_suite_and_one_well_answered_suite_does_not_help_another():
    gappy = half("humaneval@1", [None] * 10 + SAME[10:])
    decision = judged(half("gate@1", SAME * 10, SAME * 10), gappy)
    assert decision.kind is Kind.EXTEND
    assert decision.reasons[0].startswith("humaneval@1: all problems against serving editor@2: 10 of 100 problems are")
    assert [(reach.suite, reach.coverage) for reach in decision.reach] == [("gate@1", 1.0), ("humaneval@1", 0.9)]


@pytest.mark.parametrize("limits", [Limits(superior_on=["mbpp"]), Limits(margins={"humaneval: family=add": 0.2})])
def test_a_suite_or_slice_that_was_not_measured_is_refused_by_name(limits):
    name = limits.named[0]
    decision = judged(half("gate@1", SAME), half("humaneval@1", SAME), limits=limits)
    assert decision.reasons == (f"refused: the limits name {name!r}, which was not measured",)


def test_better_on_a_suite_needs_the_suite_measured_as_a_whole():
    decision = judged(half("gate@1", SAME, name="seen"), suites=("gate@1",), limits=Limits(superior_on=["gate@1"]))
    assert decision.reasons == ("refused: the limits name 'gate@1', which was not measured",)


def test_each_suite_says_what_it_cannot_see(samples):
    # GPT-5 against Sonnet 4 on 80 tasks of Terminal-Bench: SE 3.2724, so 2.8016 * 3.2724 = 9.17 points
    tasks = defaultdict(dict)
    with (samples("terminal-bench") / "matrix_13agents_80tasks_5runs.csv").open() as file:
        for row in csv.DictReader(file):
            tasks[row["agent"]][row["task"]] = row["run_outcomes"].count("1") / len(row["run_outcomes"])
    new, old = (tasks[agent] for agent in (GPT_5, SONNET_4))
    suite = Half(
        suite="terminal-bench@1", name="all problems", families={task: task for task in new}, candidate=new,
        baselines=(Arm(role="serving", checkpoint="editor@2", scores=old),),
    )  # fmt: skip
    (reach,) = judged(suite, suites=("terminal-bench@1",)).reach
    assert (reach.num_common, reach.sentence) == (80, "this suite cannot see less than 9.2 points")
    assert reach.sd == pytest.approx(0.2927, abs=1e-4)
    same = judged(half("gate@1", SAME), suites=("gate@1",)).reach[0]
    assert same.detectable is None and "what this suite could see is not known" in same.sentence


def test_parts_that_overlap_count_each_problem_of_a_suite_once():
    seen = half("gate@1", SAME, name="seen")
    add = replace(seen, name="family=add", families={key: "f" for key in list(seen.families)[:30]})
    (reach,) = judged(seen, add, suites=("gate@1",)).reach
    assert (reach.num_asked, reach.num_common) == (100, 100)


PROBLEMS = {
    "a/1": {"family": "add", "half": "seen"},
    "a/2": {"family": "add", "half": "unseen"},
    "s/1": {"family": "sort", "half": "seen"},
}


@pytest.mark.parametrize(
    ("named", "parts"),
    [
        ([], ["seen", "unseen"]),
        (["family=add"], ["seen", "unseen", "family=add"]),
        (["gate@1: family=add", "gate"], ["seen", "unseen", "all problems", "family=add"]),
        (["humaneval: family=add", "family=mul", "unseen"], ["seen", "unseen"]),
    ],
)
def test_a_suite_falls_into_its_halves_and_what_the_limits_name(named, parts):
    assert [part.name for part in parts_of("gate@1", PROBLEMS, named)] == parts


def test_problems_without_a_half_are_a_part_of_their_own_beside_others():
    mixed = PROBLEMS | {"x": {"family": "x"}}
    assert {part.name: set(part.families) for part in parts_of("gate@1", mixed, [])} == {
        "seen": {"a/1", "s/1"}, "unseen": {"a/2"}, "other problems": {"x"},
    }  # fmt: skip
    assert [part.families for part in parts_of("gate@1", {"x": {}}, [])] == [{"x": "x"}]
    assert belongs({"family": "x"}, "other problems") and not belongs({"half": "seen"}, "other problems")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("gate@1", "give a list"),
        ([{"benchmark": "gate"}], "found 'gate'; a suite is named <benchmark>@<version>"),
        ([{"benchmark": "gate@1", "margin": 1}], "a suite is"),
        ([{"benchmark": "gate@1", "sampling": 3}], "the sampling of gate@1 is int"),
        ([{"benchmark": "gate@1"}, {"benchmark": "gate@1"}], "gate@1 is there twice"),
        ([{"benchmark": f"gate@{number}"} for number in range(8)], "8 further suites are too many"),
    ],
)
def test_suites_that_cannot_be_are_refused_with_the_reason(value, said):
    with pytest.raises(ValueError, match=said):
        suites_from(value)


FINE, LOST, THIN = (half("gate@1", values) for values in (SAME, WORSE, [None] * 10 + SAME[10:]))
GONE = half("gate@1", [0.0] * 100, [1.0] * 100)
ONE = ("gate@1",)


@pytest.mark.parametrize(
    ("kind", "decided", "reason"),
    [
        (Kind.PROMOTE, lambda: judged(FINE, suites=ONE), "not inferior"),
        (Kind.CANARY, lambda: judged(FINE, suites=ONE, limits=Limits(canary_share=0.1)), "serves 10% of the traffic"),
        (Kind.EXTEND, lambda: judged(THIN, suites=ONE), "coverage 90% is below 95%"),
        (Kind.HOLD, lambda: judged(LOST, suites=ONE), "inferiority is not ruled out"),
        (Kind.ROLL_BACK, lambda: judged(GONE, suites=ONE, stage=Stage.SERVING), "is below −10.0 points"),
    ],
    ids=lambda value: value.value if isinstance(value, Kind) else "",
)
def test_each_decision_is_reached_and_says_why(kind, decided, reason):
    report = decided().to_json()
    assert report["decision"] == kind
    assert reason in report["reasons"][-1]
