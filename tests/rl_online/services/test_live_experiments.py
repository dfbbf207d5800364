"""A canary on real rows: who is counted, what is kept, and what is done about it."""

from datetime import timedelta

import pytest
from django.utils import timezone

from jobs.models import Job
from jobs.services import claim, run
from registry.errors import InvalidInput
from registry.models import AuditEvent, Checkpoint, Deployment
from registry.tenancy import tenant
from rl_online.models import CanaryLook, GateReport, LearningPlan, UpdateRun
from rl_online.services import live_experiments, plans
from rl_online.services.canaries import start_canary, stop_canary

pytestmark = pytest.mark.django_db

FEW = {"min_users": 10, "scale": 0.2, "guards": {name: None for name in ("retry share", "output tokens", "latency")}}


@pytest.fixture
def canary(project, policy, judged, sealed, trained) -> Checkpoint:
    """`editor@2`, just started, for a tenth of the users."""
    judged("accept"), judged("reject")
    made = trained(sealed())
    with tenant(project.id):
        GateReport.objects.create(checkpoint=made, decision="canary", reasons=[], evidence={})
        plans.change_plan(policy, actor="test", live_limits=FEW)
        start_canary(made, share=0.1, actor="ada")
        UpdateRun.objects.filter(checkpoint=made).update(state="waiting")
    return made


@pytest.fixture
def answered(judged):
    """answered(version, accepted, rejected, ...): turns of now, each by a user of its own unless `user` is given."""

    def make(version: int, accepted: int, rejected: int, **fields):
        for signal, count in (("accept", accepted), ("reject", rejected)):
            for _ in range(count):
                judged(signal, version=version, **({"at": timezone.now()} | fields))

    return make


def look(project) -> CanaryLook:
    """What beat and a worker do in a minute."""
    live_experiments.ask_to_look()
    run(claim(Job.objects.get(kind=live_experiments.WATCH_CANARY_JOB, state="queued").id, "worker-1"))
    with tenant(project.id):
        return CanaryLook.objects.latest("at")


def stands(project) -> tuple[int, int | None]:
    with tenant(project.id):
        deployment = Deployment.objects.select_related("checkpoint", "canary").get()
        return deployment.checkpoint.version, deployment.canary and deployment.canary.version


def reports(project) -> list[GateReport]:
    with tenant(project.id):
        return list(GateReport.objects.filter(evidence__stage="canary").order_by("id"))


def test_a_canary_with_too_few_users_runs_on_and_its_look_is_kept(project, canary, answered):
    answered(2, 2, 1), answered(1, 3, 3)
    kept = look(project)
    found = kept.evidence["live_findings"][0]
    assert (kept.decision, found["num_new"], found["num_old"]) == ("extend", 3, 6)
    assert kept.reasons[0] == "accept share: not known yet, 3 users of the canary and 6 others; 10 of each are needed"
    assert (stands(project), reports(project)) == ((1, 2), [])


def test_a_look_that_says_the_same_is_kept_once(project, canary, answered):
    answered(2, 2, 1)
    look(project), look(project)
    with tenant(project.id):
        assert CanaryLook.objects.count() == 1
    answered(2, 1, 0)
    look(project)
    with tenant(project.id):
        assert CanaryLook.objects.count() == 2


def test_a_shown_loss_ends_the_canary_and_leaves_a_report(project, policy, canary, answered):
    answered(2, 1, 24), answered(1, 24, 1)
    assert look(project).decision == "roll_back"
    assert stands(project) == (1, None)
    (report,) = reports(project)
    assert report.decision == "roll_back" and "shown to accept less" in report.reasons[0]
    with tenant(project.id):
        assert Checkpoint.objects.get(pk=canary.pk).state == "candidate"
        stop = AuditEvent.objects.get(verb="stop canary")
        assert (stop.actor, stop.reason) == ("strop", report.reasons[0])
        assert UpdateRun.objects.get(checkpoint=canary).state == "held"
    assert Job.objects.filter(kind=live_experiments.WATCH_CANARY_JOB, state="queued").count() == 0


def test_what_is_shown_to_be_no_worse_is_promoted_where_the_plan_promotes_by_itself(project, canary, answered):
    answered(2, 24, 1), answered(1, 1, 24)
    assert look(project).decision == "promote"
    assert stands(project) == (2, None)
    with tenant(project.id):
        assert AuditEvent.objects.filter(verb="promote", actor="strop").exists()


def test_where_a_person_promotes_it_is_reported_once_and_guarded_on(project, policy, canary, answered):
    with tenant(project.id):
        plans.change_plan(policy, actor="test", promotion="by_person")
    answered(2, 24, 1), answered(1, 1, 24)
    look(project), look(project)
    assert (stands(project), [report.decision for report in reports(project)]) == ((1, 2), ["promote"])
    answered(2, 0, 80), answered(1, 80, 0)
    assert look(project).decision == "roll_back"
    assert (stands(project), [report.decision for report in reports(project)]) == ((1, None), ["promote", "roll_back"])


def test_who_was_answered_by_both_is_left_out_and_counted(project, canary, answered):
    answered(2, 1, 0, user="both"), answered(1, 1, 0, user="both"), answered(1, 1, 0, user="one")
    evidence = look(project).evidence
    assert (evidence["num_crossed"], evidence["live_findings"][0]["num_old"]) == (1, 1)


def test_turns_before_the_start_and_the_gates_own_are_not_in_the_experiment(project, canary, answered):
    answered(1, 5, 0, at=timezone.now() - timedelta(minutes=30))
    answered(1, 3, 0, source="eval")
    assert look(project).evidence["live_findings"][0]["num_old"] == 0


def test_a_users_own_past_is_taken_along(project, canary, answered):
    answered(1, 3, 1, at=timezone.now() - timedelta(hours=1), user="ann")
    answered(2, 1, 0, user="ann"), answered(2, 1, 0, user="new here")
    with tenant(project.id):
        experiment = live_experiments.running(canary.id)
        found = live_experiments.evidence_of(experiment, now=timezone.now())
    assert sorted((user.accept_share, user.accept_share_before) for user in found.new if user.accept_share_before) == [
        (1.0, 0.75)
    ]
    assert len(found.new) == 2


def test_a_turn_without_a_user_belongs_to_its_session(project, canary, answered):
    answered(2, 2, 0, user=None, session="one session")
    assert look(project).evidence["live_findings"][0]["num_new"] == 1


def test_guards_count_errors_by_user(project, policy, canary, judged):
    now = timezone.now()
    judged(None, version=2, at=now, user="ann", error="the tool failed", completion="")
    judged("accept", version=2, at=now, user="ann")
    judged("accept", version=1, at=now, user="bob")
    guard = look(project).evidence["live_findings"][1]
    assert (guard["name"], guard["mean_new"], guard["mean_old"]) == ("error share", 0.5, 0.0)


def test_a_canary_that_a_person_stopped_is_not_looked_at(project, policy, canary, answered):
    answered(2, 1, 24), answered(1, 24, 1)
    live_experiments.ask_to_look()
    with tenant(project.id):
        stop_canary(policy, actor="ada")
    run(claim(Job.objects.get(kind=live_experiments.WATCH_CANARY_JOB, state="queued").id, "worker-1"))
    assert reports(project) == []


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"margin": 0}, "margin is 0; give more than 0"),
        ({"confidence": 1.0}, "confidence is 1.0; give .5 to below 1"),
        ({"guards": {"speed": 1}}, "no guard 'speed'; known are error share"),
        ({"margins": 0.1}, "margins"),
        ({"margin": "wide"}, "not supported"),
    ],
)
def test_wrong_limits_are_refused_by_name(project, policy, limits, said):
    with tenant(project.id):
        with pytest.raises(InvalidInput, match=said) as refused:
            plans.change_plan(policy, actor="test", live_limits=limits)
        assert refused.value.field == "live_limits"
        assert LearningPlan.objects.get(policy=policy).live_limits == {}
