"""Emptying a project: what users and the loop made goes, what people set up stays."""

import threading

import pytest
from django.db import connection

from feedback.models import AgentSession, Turn, UserSignal
from jobs.models import Job
from registry.errors import Conflict
from registry.models import AuditEvent, Checkpoint, Deployment, Policy
from registry.services import create_key
from registry.tenancy import tenant
from rl_online.models import LearningPlan, RewardBatch, UpdateRun
from rl_online.services import reset, runs, sealing


@pytest.fixture
def learnt(project, policy, judged, promoted):
    """A policy that learnt once and serves version 2, with turns left over."""
    for _ in range(4):
        judged("accept")
    promoted()
    judged("reject")
    with tenant(project.id):
        create_key("kept", ["read"], actor="test")
    return policy


def test_what_users_and_the_loop_made_is_gone_and_the_first_checkpoint_serves(project, learnt):
    with tenant(project.id):
        gone = reset.reset_project(project, actor="owner")
        left = [model.objects.count() for model in (Turn, UserSignal, AgentSession, UpdateRun, RewardBatch)]
        assert left == [0] * 5
        deployment = Deployment.objects.get()
        assert (deployment.checkpoint.version, deployment.checkpoint.state, deployment.previous) == (1, "serving", None)
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM feedback_turnpayload")
            assert cursor.fetchone() == (0,)
    assert gone["feedback_turn"] == 5 and gone["checkpoints"] == 1
    assert not Job.objects.filter(project_id=project.id).exists()


def test_what_people_set_up_stays_and_the_reset_is_in_the_audit_trail(project, learnt):
    with tenant(project.id):
        before = AuditEvent.objects.count()
        reset.reset_project(project, actor="owner")
        assert (Policy.objects.count(), LearningPlan.objects.count()) == (1, 1)
        assert AuditEvent.objects.count() == before + 1
        assert AuditEvent.objects.latest("id").after["deleted"]["feedback_turn"] == 5


def test_a_checkpoints_name_is_not_used_again(project, learnt, judged, sealed):
    with tenant(project.id):
        reset.reset_project(project, actor="owner")
        later = Checkpoint.objects.get(version=2)
        assert (later.state, later.files_deleted_reason) == ("retired", "the project was reset")
    for number in range(4):
        judged("accept", id=f"anew-{number}")
    assert sealed().version == 3


def test_an_update_under_way_is_not_pulled_from_under_the_updater(project, policy, judged, sealed):
    for _ in range(4):
        judged("accept")
    run = sealed()
    with tenant(project.id):
        with pytest.raises(Conflict, match="an update is under way"):
            reset.reset_project(project, actor="owner")
        runs.end(run.id, "cancelled")
        reset.reset_project(project, actor="owner")


@pytest.mark.django_db(transaction=True)
def test_an_update_that_starts_while_a_reset_waits_is_not_pulled_from_under_the_updater(project, policy, judged):
    for _ in range(4):
        judged("accept")
    locked, refusals = threading.Event(), []

    def empty() -> None:
        assert locked.wait(20)
        try:
            with tenant(project.id):
                reset.reset_project(project, actor="owner")
        except Conflict as refusal:
            refusals.append(refusal.message)
        finally:
            connection.close()

    owner = threading.Thread(target=empty)
    owner.start()
    with tenant(project.id):
        prepared = sealing.prepare(sealing.look(policy), project.id)
        sealing.lock_for_update(policy, parent=prepared.parent)
        locked.set()
        owner.join(1.0)
        assert owner.is_alive(), "the reset did not wait"
        run = sealing.open_update(prepared, trigger="person", requested_by="test")
    owner.join(20)
    assert refusals == ["an update is under way; cancel it, or wait until it is over"]
    with tenant(project.id):
        assert UpdateRun.objects.get().pk == run.pk and Turn.objects.count() == 4


def test_another_projects_rows_are_untouched(project, other_project, learnt):
    with tenant(other_project.id):
        before = AuditEvent.objects.count()
        Policy.objects.create(name="theirs")
    with tenant(project.id):
        reset.reset_project(project, actor="owner")
    with tenant(other_project.id):
        assert (Policy.objects.count(), AuditEvent.objects.count()) == (1, before)


MADE_BY_USE = {
    "registry.Notice", "registry.NoticeDelivery", "registry.IdempotentCall",
    "feedback.LedgerItem", "feedback.OutcomeCount", "feedback.LastRefusal", "feedback.AgentSession", "feedback.Turn",
    "feedback.UserSignal", "feedback.Label", "feedback.Flag", "feedback.ReviewResponse", "feedback.ReviewReservation",
    "feedback.ReviewDraft", "feedback.DirtyHour",
    "evals.EvalRun", "evals.Score", "evals.Comparison", "evals.JudgeCall", "evals.CanaryRun",
    "evals.LiveRating", "evals.GoldLabel", "evals.AnchorRun", "evals.ComparisonSet", "evals.ImportedStandings",
    "evals.RaterAgreement",
    "rl_online.RewardBatch", "rl_online.BatchSample", "rl_online.UpdateRun", "rl_online.UpdateMetric",
    "rl_online.DryRun", "rl_online.GateReport", "rl_online.EngineHolding", "rl_online.EngineReport",
    "rl_online.Alarm", "rl_online.PolicyImport", "rl_online.CanaryLook",
    "rl_online.SampleHashes", "rl_online.Overlap", "rl_online.OverlapCheck", "rl_online.TeacherAnswer",
    "rl_online.RewardModel",
}  # fmt: skip


def test_every_model_of_a_tenant_is_named_as_what_stays_or_as_what_goes():
    """A new one has to be put on the list when it holds what people set up."""
    labels = {model._meta.label for model in reset.tenant_models()}
    rollups = {label for label in labels if label.endswith("Rollup")}
    assert labels == reset.STAYS | MADE_BY_USE | rollups
    assert not reset.STAYS & (MADE_BY_USE | rollups)
