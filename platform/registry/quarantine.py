"""Jobs of one project that failed five times and were put aside, and another try for them. Inside a tenant; audited."""

from jobs.models import Job, JobState
from jobs.services import replay
from registry.errors import Conflict, NotFound
from registry.services import audit
from registry.tenancy import current_project_id


def replay_job(job_id: int, *, actor: str, reason: str = "") -> Job:
    """Five new attempts. Raises NotFound for another project's job too, Conflict when it is not quarantined."""
    job = Job.objects.filter(id=job_id, project_id=current_project_id()).first()
    if job is None:
        raise NotFound("no such job")
    if job.state != JobState.QUARANTINED:
        raise Conflict(f"job {job_id} is {job.state}; only a quarantined one is replayed")
    if job.key is not None and Job.objects.filter(kind=job.kind, key=job.key, state=JobState.QUEUED).exists():
        raise Conflict(f"a newer {job.kind} job waits already and stands for this one")
    if not replay(job_id):
        raise Conflict(f"job {job_id} was replayed by somebody else")
    audit(
        "replay", "job", job_id, actor=actor, reason=reason,
        before={"state": JobState.QUARANTINED, "kind": job.kind, "attempts": job.attempts},
        after={"state": JobState.QUEUED},
    )  # fmt: skip
    return job
