"""A held candidate is put before the gate once more, by a person."""

from datetime import timedelta

import pytest
from django.utils import timezone

from jobs.models import Job
from registry.errors import Conflict, InvalidInput
from registry.models import AuditEvent, Checkpoint
from registry.tenancy import tenant
from rl_online.models import GateReport, UpdateRun
from rl_online.services import promotion
from rl_online.services.proving import proof_of
from rl_online.services.reopening import reopen
from rl_online.services.runs import PROVE_JOB

pytestmark = pytest.mark.django_db


@pytest.fixture
def report(project, policy, judged, sealed, trained) -> GateReport:
    """Of `editor@2`, held after it was asked twice, an hour ago."""
    judged("accept"), judged("reject")
    made = trained(sealed())
    with tenant(project.id):
        run = UpdateRun.objects.get(checkpoint=made)
        for decision in ("extend", "extend", "hold"):
            found = GateReport.objects.create(
                checkpoint=made, run=run, decision=decision, reasons=["thin"], evidence={}
            )
        UpdateRun.objects.update(state="held", finished_at=timezone.now())
        before = timezone.now() - timedelta(hours=1)
        GateReport.objects.update(created_at=before)
        Checkpoint.objects.filter(pk=made.pk).update(created_at=before)
    Job.objects.all().delete()
    return found


def test_it_is_proved_anew_from_the_first_round_and_the_old_report_stays(project, report):
    with tenant(project.id):
        run = reopen(report, actor="ada", reason="the sandbox was broken")
        assert (run.state, run.finished_at) == ("proving", None)
        assert Job.objects.get(kind=PROVE_JOB).payload == {"run": str(run.id)}
        proof = proof_of(run.id)
        assert proof.rounds == 1 and timezone.now() - proof.opened_at < timedelta(minutes=1)
        assert GateReport.objects.get(pk=report.pk).decision == "hold"
        event = AuditEvent.objects.get(verb="reopen the gate")
        assert (event.actor, event.reason, event.before) == ("ada", "the sandbox was broken", {"report": report.pk})


def test_it_needs_a_reason(project, report):
    with tenant(project.id):
        with pytest.raises(InvalidInput, match="needs a reason"):
            reopen(report, actor="ada", reason=" ")
        assert UpdateRun.objects.get().state == "held"


def test_twice_at_once_is_asked_once(project, report):
    with tenant(project.id):
        reopen(report, actor="ada", reason="once")
        with pytest.raises(Conflict, match="only a held candidate"):
            reopen(report, actor="bob", reason="twice")
    assert Job.objects.filter(kind=PROVE_JOB).count() == 1


def test_what_serves_or_was_rejected_is_not_reopened(project, report):
    with tenant(project.id):
        promotion.reject(report.checkpoint, actor="ada", reason="bad")
        with pytest.raises(Conflict, match="is rejected"):
            reopen(report, actor="ada", reason="anyway")


def test_a_candidate_of_a_line_that_moved_on_is_not_reopened(project, policy, report, judged, promoted):
    judged("accept"), judged("reject")
    promoted()
    with tenant(project.id), pytest.raises(Conflict, match="no longer serving"):
        reopen(report, actor="ada", reason="anyway")


def test_a_report_without_an_update_is_not_reopened(project, report):
    with tenant(project.id):
        GateReport.objects.filter(pk=report.pk).update(run=None)
        report.refresh_from_db()
        with pytest.raises(Conflict, match="no update stands behind"):
            reopen(report, actor="ada", reason="anyway")


def test_while_another_update_is_open_nothing_is_reopened(project, policy, report, judged, sealed):
    judged("accept"), judged("reject")
    sealed()
    with tenant(project.id), pytest.raises(Conflict, match="is queued; one is proved at a time"):
        reopen(report, actor="ada", reason="anyway")
