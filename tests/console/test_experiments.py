"""A running canary on the Deployments page, and what its gate report and the guards say."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from registry.models import Checkpoint
from registry.tenancy import tenant
from rl_online.gate import Arm, Evidence, Guard, Half, Limits, decide
from rl_online.models import CanaryLook, GateReport, UpdateRun
from rl_online.services import live_experiments, plans
from rl_online.services.canaries import start_canary
from tests.console import factories

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
    evidence = Evidence(candidate="editor@3", halves=(half, replace(half, name="unseen families")), guards=(long,))
    decision = decide(evidence, Limits(margins={"seen families": 0.2}))
    with tenant(project.id):
        checkpoint = Checkpoint.objects.get(policy=loop.policy, version=3)
        report = GateReport.objects.create(
            checkpoint=checkpoint, decision=decision.kind, reasons=list(decision.reasons),
            evidence=decision.to_json()["evidence"],
        )  # fmt: skip
    html = get(as_owner, "gate", report=report.pk)
    assert "Guards" in html and "output tokens" in html and "+50.0" in html and "only shown" in html
    assert "Can see" in html and "upright strokes: the margin of each" in html


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
