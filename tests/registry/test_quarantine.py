"""Another try for a job that was put aside."""

import pytest
from django.utils import timezone

from jobs.models import Job
from registry.errors import Conflict, NotFound
from registry.models import AuditEvent
from registry.quarantine import replay_job
from registry.tenancy import tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(project):
    return Job.objects.create(
        kind="feedback.label", project_id=project.id, state="quarantined", attempts=5, run_at=timezone.now()
    )


def test_a_quarantined_job_gets_five_new_attempts_and_the_audit_trail_says_who(job, project):
    with tenant(project.id):
        replay_job(job.id, actor="ann", reason="the disk is free again")
        event = AuditEvent.objects.get(object_kind="job")
    job.refresh_from_db()
    assert (job.state, job.attempts, event.actor, event.before["kind"]) == ("queued", 0, "ann", "feedback.label")


def test_a_job_that_is_not_quarantined_is_left_alone(job, project):
    Job.objects.update(state="queued")
    with tenant(project.id), pytest.raises(Conflict, match="is queued"):
        replay_job(job.id, actor="ann")


def test_another_project_s_job_is_not_found(job, other_project):
    with tenant(other_project.id), pytest.raises(NotFound):
        replay_job(job.id, actor="ann")
    job.refresh_from_db()
    assert job.state == "quarantined"


def test_a_job_that_a_newer_one_stands_for_is_not_replayed(job, project):
    Job.objects.update(key="k")
    Job.objects.create(kind="feedback.label", project_id=project.id, key="k", run_at=timezone.now())
    with tenant(project.id), pytest.raises(Conflict, match="stands for this one"):
        replay_job(job.id, actor="ann")
