"""A running canary on the Deployments page, and what its gate report and the guards say."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from registry.models import Checkpoint
from registry.tenancy import tenant
from rl_online.gate.decision import decide
from rl_online.gate.evidence import Arm, Evidence, Guard, Half, JudgedWins
from rl_online.gate.forgetting import DocumentLoss, Forgetting
from rl_online.gate.limits import Limits
from rl_online.models import CanaryLook, GateReport, LearningPlan, UpdateRun
from rl_online.services import live_experiments, plans
from rl_online.services.canaries import start_canary
from tests.console import factories
from tests.console.evaluate import make_benchmark, make_judge

pytestmark = pytest.mark.django_db


def get(client, name, /, **kwargs):
    response = client.get(reverse(f"console:{name}", kwargs={"project": "editor"} | kwargs))
    assert response.status_code == 200, response.status_code
    return response.content.decode()


@pytest.fixture
def canary(project, loop) -> Checkpoint:
    with tenant(project.id):
        made = Checkpoint.objects.select_related("policy").get(policy=loop.policy, version=3)
        Checkpoint.objects.filter(pk=made.pk).update(state="candidate")
        plans.change_plan(loop.policy, actor="test", live_limits={"min_users": 10, "scale": 0.2})
        start_canary(made, share=0.1, actor="ada", reason="a test")
    return made


def answered(version: int, accepted: int, rejected: int, *, users: str) -> None:
    for number in range(accepted + rejected):
        outcome = "accept" if number < accepted else "reject"
        who = f"{users}-{number}"
        factories.make_turn(f"s-{who}", version=version, user=who, outcome=outcome, at=timezone.now())


def look(project, canary) -> None:
    now = timezone.now()
    with tenant(project.id):
        experiment = live_experiments.running(canary.id)
        decision = live_experiments.decide_live(live_experiments.evidence_of(experiment, now=now), experiment.limits)
        live_experiments._keep(experiment, decision, now=now)


def test_before_the_first_look_the_page_says_when_it_comes(as_owner, canary):
    html = get(as_owner, "deployments")
    assert "Live experiment" in html and "The first look comes within a minute" in html


def test_without_a_canary_there_is_no_experiment(as_owner, loop):
    assert "Live experiment" not in get(as_owner, "deployments")


def test_a_look_is_drawn_with_its_interval_and_both_arms(as_owner, project, canary):
    with tenant(project.id):
        answered(3, 12, 8, users="new")
        answered(2, 10, 10, users="old")
    look(project, canary)
    html = get(as_owner, "deployments")
    assert '20 <span class="meta">/ 20</span>' in html  # users of both arms
    assert "60.0 %" in html and "50.0 %" in html and "+10.0" in html
    assert "not ruled out" in html and "confidence sequence over time" in html


def test_too_few_users_are_said_to_be_too_few_and_nothing_is_drawn(as_owner, project, canary):
    with tenant(project.id):
        answered(3, 2, 0, users="new")
    look(project, canary)
    html = get(as_owner, "deployments")
    assert "2 users of the canary and 0 others; 10 of each are needed" in html
    assert "confidence sequence over time" not in html


def test_the_report_of_a_canary_shows_users_not_problems(as_owner, project, canary):
    with tenant(project.id):
        answered(3, 1, 24, users="new")
        answered(2, 24, 1, users="old")
        experiment = live_experiments.running(canary.id)
        decision = live_experiments.decide_live(
            live_experiments.evidence_of(experiment, now=timezone.now()), experiment.limits
        )
        report = live_experiments.carry_out(experiment, decision)
    html = get(as_owner, "gate", report=report.pk)
    assert "shown worse" in html and "users of editor@3 against users of editor@2" in html.replace("  ", " ")
    assert "nothing was measured" not in html


def test_an_old_look_of_an_earlier_try_is_not_shown(as_owner, project, canary):
    with tenant(project.id):
        CanaryLook.objects.create(
            checkpoint=canary, started_at=timezone.now() - timedelta(days=3), at=timezone.now() - timedelta(days=3),
            decision="extend", reasons=["an old reason"], evidence={"live_findings": []},
        )  # fmt: skip
    assert "an old reason" not in get(as_owner, "deployments")


def test_guards_and_what_can_be_seen_stand_in_the_gates_report(as_owner, project, loop):
    keys = [str(number) for number in range(40)]
    serving = {key: float(int(key) % 2) for key in keys}
    half = Half(
        name="seen families",
        families={key: "f" for key in keys},
        candidate=serving | {"1": 0.0},
        baselines=(Arm(role="serving", checkpoint="editor@2", scores=serving),),
    )
    long = Guard(
        name="output tokens", candidate=dict.fromkeys(keys, 15.0), serving=dict.fromkeys(keys, 10.0), relative=True
    )
    halves = (half, replace(half, name="unseen families"))
    lost = [
        DocumentLoss(name=name, num_tokens=10, num_bytes=40, candidate_nats=33.0, base_nats=30.0) for name in ("a", "b")
    ]
    forgetting = Forgetting(texts="own.txt", digest="d" * 64, base="b", documents=tuple(lost))
    evidence = Evidence(candidate="editor@3", halves=halves, guards=(long,), forgetting=forgetting)
    decision = decide(evidence, Limits(margins={"seen families": 0.2}))
    with tenant(project.id):
        checkpoint = Checkpoint.objects.get(policy=loop.policy, version=3)
        report = GateReport.objects.create(
            checkpoint=checkpoint, decision=decision.kind, reasons=list(decision.reasons),
            evidence=decision.to_json()["evidence"],
        )  # fmt: skip
    html = get(as_owner, "gate", report=report.pk)
    assert "Guards" in html and "output tokens" in html and "+50.0" in html and "only shown" in html
    assert "General text" in html and "own.txt" in html and "upper 95% bound +0.300 not below +0.200" in html
    assert "Can see" in html and "upright strokes: the margin of each" in html


SAME = {str(number): float(number % 2) for number in range(40)}
SHOWN = {
    "name": "strict", "model": "judge-1", "win_rate": 0.6, "low": 0.446, "high": 0.737, "num_pairs": 40, "wins": 24,
    "ties": 0, "losses": 16, "invalid": 0, "errors": 0, "agreement": 0.9, "agreement_low": 0.77, "agreement_high": 0.96,
    "num_compared": 40, "kappa": 0.8, "kappa_low": 0.61, "kappa_high": 0.99, "sentence": "agrees with the tests",
}  # fmt: skip


def kept(project, loop, decision, **evidence) -> GateReport:
    with tenant(project.id):
        checkpoint = Checkpoint.objects.get(policy=loop.policy, version=3)
        return GateReport.objects.create(
            checkpoint=checkpoint, decision=decision.kind, reasons=list(decision.reasons),
            evidence=decision.to_json()["evidence"] | evidence, judge=dict(decision.judge or {}),
        )  # fmt: skip


def test_a_report_of_several_suites_shows_each_with_its_reach_its_targets_and_the_judges_vote(as_owner, project, loop):
    arm = Arm(role="serving", checkpoint="editor@2", scores=SAME)
    halves = [
        Half(suite=suite, name="all problems", families=dict.fromkeys(SAME, "f"), candidate=SAME | changed,
             baselines=(arm,))
        for suite, changed in (("gate@1", {"0": 1.0}), ("humaneval@1", {"1": 0.0}))
    ]  # fmt: skip
    wins = JudgedWins(judge="strict (judge-1)", num_decided=40, num_undecided=0, rate=0.6, low=0.446, high=0.737)
    corrected = {"estimate": {"value": 0.55, "low": 0.4, "high": 0.7}, "num_labelled": 12, "num_unlabelled": 28}
    evidence = Evidence(
        candidate="editor@3", halves=tuple(halves), suites=("gate@1", "humaneval@1"), wins=wins,
        judge=SHOWN | {"corrected": corrected},
    )  # fmt: skip
    decision = decide(evidence, Limits(superior_on=["humaneval"], judged=0.4))
    html = get(as_owner, "gate", report=kept(project, loop, decision).pk)
    # one of 40 differs: SE 2.5 points, so 2.8016 * 2.5 = 7.0
    assert html.count("this suite cannot see less than 7.0 points") == 2
    assert "humaneval@1: all problems" in html and "p by Holm" in html
    assert "alpha 5 %" in html and "Chance that a true difference is found" in html
    assert "has a vote: its win rate is to lie above 40.0 %" in html
    assert "55.0 %, 40.0 % to 70.0 %" in html and "12 votes of people" in html


def test_a_judge_without_a_vote_says_why_on_the_report(as_owner, project, loop):
    half = Half(
        name="all problems", families=dict.fromkeys(SAME, "f"), candidate=SAME,
        baselines=(Arm(role="serving", checkpoint="editor@2", scores=SAME),),
    )  # fmt: skip
    wins = JudgedWins(
        judge="base (editor@1)", num_decided=10, num_undecided=0, rate=0.9, low=0.6, high=0.98,
        no_vote="it failed its canaries",
    )  # fmt: skip
    decision = decide(Evidence(candidate="editor@3", halves=(half,), wins=wins, judge=SHOWN), Limits(judged=0.4))
    html = get(as_owner, "gate", report=kept(project, loop, decision).pk)
    assert "asked to vote, but has none" in html and "has no vote, it failed its canaries" in html
    assert "so what this suite could see is not known" in html and "the power is not known" in html


def test_a_report_from_before_there_were_several_suites_still_shows_what_it_could_see(as_owner, project, loop):
    half = Half(
        name="seen families", families=dict.fromkeys(SAME, "f"), candidate=SAME | {"1": 0.0},
        baselines=(Arm(role="serving", checkpoint="editor@2", scores=SAME),),
    )  # fmt: skip
    report = kept(project, loop, decide(Evidence(candidate="editor@3", halves=(half,))))
    with tenant(project.id):
        for new in ("reach", "targets", "vote"):
            del report.evidence[new]
        for finding in report.evidence["findings"]:
            del finding["suite"], finding["title"]
        report.save()
    html = get(as_owner, "gate", report=report.pk)
    assert "seen families" in html and "seen families, n 40" in html and "Chance that a true difference" in html
    assert "Problems of report" in get(as_owner, "gate-problems", report=report.pk)


def test_an_engineer_reopens_a_held_candidate_from_its_report(as_engineer, project, loop):
    with tenant(project.id):
        report = GateReport.objects.select_related("run").get(decision="hold")
    assert "Ask again" not in get(as_engineer, "gate", report=report.pk)  # another update is in training
    with tenant(project.id):
        UpdateRun.objects.filter(state="training").update(state="cancelled")
    assert "Ask again" in get(as_engineer, "gate", report=report.pk)
    address = reverse("console:gate-reopen", kwargs={"project": "editor", "report": report.pk})
    said = as_engineer.post(address, {"reason": "the sandbox was broken"}, follow=True).content.decode()
    assert "The gate is asked again about" in said and "Ask again" not in said
    with tenant(project.id):
        report.run.refresh_from_db()
        assert report.run.state == "proving"


RULES = {
    "gate_benchmark": "editor-gate@1", "gate_suites": 'humaneval@1 {"max_tokens": 512}', "margin": "5",
    "margins": "humaneval: 2.5\nhumaneval: family=add: 20", "judged": "45", "judged_pairs": "60",
    "superior_on": "seen families, unseen families",
    "guards": "output tokens: 0.25\n\nempty answers: 0.05", "canary": "10", "live_margin": "3", "min_users": "80",
    "max_days": "7.5", "live_guards": "latency: 0.1", "max_forgetting": "0.3",
}  # fmt: skip


@pytest.fixture
def send_rules(as_engineer, project, loop):
    """send_rules(margin="7") -> the answer to the form as it stands on the page, with some of it changed."""

    def send(**changed):
        page = as_engineer.get(reverse("console:deployments", kwargs={"project": "editor"}))
        address = reverse("console:gate-rules", kwargs={"project": "editor", "policy": "editor"})
        seen = changed.pop("seen", page.context["seen"])
        return as_engineer.post(address, page.context["rules"] | changed | {"seen": seen}, follow=True)

    return send


def test_the_rules_are_changed_by_their_form_and_hold_as_they_were_written(send_rules, project, loop):
    with tenant(project.id):
        make_benchmark("humaneval", size=1)
        judge = make_judge("strict", "judge-1")
    answer = send_rules(**RULES, gate_judge=f"{judge.pk}")
    assert "is judged by these rules" in answer.content.decode()
    with tenant(project.id):
        plan = LearningPlan.objects.get(policy=loop.policy)
        gate, live = plans.gate_limits(plan), plans.live_limits(plan)
    assert (gate.margin, gate.superior_on, gate.canary_share) == (0.05, ["seen families", "unseen families"], 0.1)
    assert gate.guards == {"output tokens": 0.25, "empty answers": 0.05}
    assert gate.max_forgetting == 0.3
    assert plan.gate_suites == [{"benchmark": "humaneval@1", "sampling": {"max_tokens": 512}}]
    assert gate.margins == {"humaneval": 0.025, "humaneval: family=add": 0.2}
    assert (plan.gate_judge_id, plan.judged_pairs, gate.judged) == (judge.pk, 60, 0.45)
    assert {name: answer.context["rules"][name] for name in ("gate_suites", "margins", "judged")} == {
        name: RULES[name] for name in ("gate_suites", "margins", "judged")
    }
    assert "editor-gate@1 and 1 more" in answer.content.decode()
    assert (live.margin, live.min_users, live.max_days) == (0.03, 80, 7.5)
    assert [(guard.name, guard.at_most) for guard in live.guards] == [("latency", 0.1)]
    assert answer.context["rules"]["live_guards"] == "latency: 0.1"


def test_saving_the_form_as_it_stands_changes_nothing_that_holds(send_rules, project, loop):
    with tenant(project.id):
        plan = LearningPlan.objects.get(policy=loop.policy)
        before = plans.gate_limits(plan), plans.live_limits(plan), plan.gate_benchmark
    send_rules()
    with tenant(project.id):
        plan = LearningPlan.objects.get(policy=loop.policy)
        assert (plans.gate_limits(plan).margin, plans.live_limits(plan), plan.gate_benchmark) == (
            before[0].margin, before[1], before[2],
        )  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"margin": "wide"}, "Margin on problems: found &#x27;wide&#x27;; give a number"),
        ({"margin": "150"}, "margin is 1.5; give a share from 0 to 1"),
        ({"guards": "latency"}, "write a line like `latency: 0.25`"),
        ({"margins": "humaneval 5"}, "write a line like `humaneval: 5`"),
        ({"gate_suites": "mbpp@1"}, "Further benchmarks: there is no benchmark mbpp@1"),
        ({"judged": "nan"}, "Judge&#x27;s vote: found &#x27;nan&#x27;; give a number"),
        ({"live_guards": "speed: 1"}, "no guard &#x27;speed&#x27;; known are error share"),
        ({"max_days": "0"}, "max_days is 0.0; give more than 0"),
    ],
)
def test_rules_that_cannot_be_are_refused_and_what_was_written_stays(send_rules, project, loop, changed, said):
    answer = send_rules(**changed)
    html = answer.content.decode()
    assert answer.status_code == 400 and said in html
    assert next(iter(changed.values())) in html
    with tenant(project.id):
        assert LearningPlan.objects.get(policy=loop.policy).live_limits == {}


def test_a_form_from_before_somebody_elses_change_overwrites_nothing(send_rules, project, loop):
    page = send_rules(margin="5")
    old = page.context["seen"].replace('"5"', '"10"')
    answer = send_rules(margin="20", seen=old)
    assert answer.status_code == 409 and "changed after you opened this form" in answer.content.decode()
    with tenant(project.id):
        assert LearningPlan.objects.get(policy=loop.policy).gate_limits["margin"] == 0.05
