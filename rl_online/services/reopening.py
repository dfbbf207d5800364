"""Asking the gate once more about a candidate it held: by a person, for a reason, audited. The old report stays.

Answers that are kept are not asked again; what could not be had or scored is. Inside a tenant.
"""

from datetime import datetime

from jobs.services import enqueue
from registry.errors import Conflict, InvalidInput
from registry.models import AuditEvent, Checkpoint, CheckpointState
from registry.services import audit
from rl_online.models import OPEN_STATES, GateReport, UpdateRun, UpdateState
from rl_online.services.promotion import locked_deployment
from rl_online.services.runs import PROVE_JOB, superseded

VERB = "reopen the gate"


def reopen(report: GateReport, *, actor: str, reason: str) -> UpdateRun:
    """Prove the report's candidate anew. Raises Conflict where it is no candidate of the line any more."""
    if not reason.strip():
        raise InvalidInput("reopening needs a reason", field="reason")
    locked_deployment(report.checkpoint.policy)
    if objection := objection_to_reopening(report):
        raise Conflict(objection)
    run = UpdateRun.objects.select_for_update(of=("self",)).get(pk=report.run_id)
    run.state, run.finished_at = UpdateState.PROVING, None
    run.save(update_fields=["state", "finished_at"])
    event = audit(VERB, "checkpoint", report.checkpoint, actor=actor, before={"report": report.pk}, reason=reason)
    enqueue(PROVE_JOB, project_id=run.project_id, payload={"run": str(run.id)}, key=f"{run.id}:reopened:{event.pk}")
    return run


def objection_to_reopening(report: GateReport) -> str | None:
    """Why the gate cannot be asked again, None where it can."""
    run = UpdateRun.objects.select_related("parent__policy", "policy").filter(pk=report.run_id).first()
    if run is None:
        return "no update stands behind this report"
    checkpoint = Checkpoint.objects.select_related("policy").get(pk=report.checkpoint_id)
    if checkpoint.state != CheckpointState.CANDIDATE or run.state != UpdateState.HELD:
        return f"{checkpoint} is {checkpoint.state}, its update {run.state}; only a held candidate can be proved again"
    if checkpoint.files_deleted_at is not None:
        return f"the files of {checkpoint} were deleted"
    other = UpdateRun.objects.select_related("policy").filter(policy=run.policy, state__in=OPEN_STATES).first()
    if other is not None:
        return f"the {other} is {other.state}; one is proved at a time"
    return superseded(run)


def opened_at(checkpoint: Checkpoint) -> datetime:
    """When its proof began: with its registration, or the last time it was reopened."""
    events = AuditEvent.objects.filter(verb=VERB, object_kind="checkpoint", object_id=str(checkpoint))
    newest = events.order_by("-at").first()
    return checkpoint.created_at if newest is None else max(checkpoint.created_at, newest.at)
