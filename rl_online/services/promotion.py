"""Moving the alias of a policy: promote a checkpoint, roll back to an earlier one. Every move is audited.

The deployment's fence grows with each move and moves are made one after the other under its row lock, so the last one
wins and all processes see the same line. Run inside `with tenant(project_id):`.
"""

from django.utils import timezone

from registry.errors import Conflict, InvalidInput, NotFound
from registry.models import Checkpoint, CheckpointState, Deployment, Policy
from registry.services import audit
from rl_online.gate.decision import Kind
from rl_online.models import GateReport, UpdateRun, UpdateState

PROMOTABLE = (CheckpointState.CANDIDATE, CheckpointState.CANARY)


def promote(checkpoint: Checkpoint, *, actor: str, reason: str = "") -> Deployment:
    """Let `checkpoint` serve. Where the gate did not say promote, or its parent serves no more, a reason is needed."""
    deployment = locked_deployment(checkpoint.policy)
    checkpoint.refresh_from_db()
    if checkpoint.state not in PROMOTABLE:
        raise Conflict(f"{checkpoint} is {checkpoint.state}; only a candidate or a canary can be promoted")
    refuse_without_files(checkpoint)
    objection = objection_to(checkpoint, deployment)
    if objection and not reason.strip():
        raise InvalidInput(f"{objection}; promoting it all the same needs a reason", field="reason")
    before = deployment.checkpoint
    Checkpoint.objects.filter(pk=before.pk).update(state=CheckpointState.RETIRED)
    _move(deployment, checkpoint, previous=before)
    UpdateRun.objects.filter(checkpoint=checkpoint).update(state=UpdateState.PROMOTED, finished_at=timezone.now())
    audit(
        "promote against the gate" if objection else "promote",
        "checkpoint",
        checkpoint,
        actor=actor,
        before={"serving": str(before)},
        after={"serving": str(checkpoint), "fence": deployment.fence},
        reason=reason,
    )
    return deployment


def roll_back(
    policy: Policy, *, actor: str, reason: str, version: int | None = None, expected: Checkpoint | None = None
) -> Deployment:
    """Serve the predecessor again, or any retired `version`. What was learnt after it is not built upon any more.

    `expected` is what the caller saw serving: Conflict when the line has moved since, so asking twice moves it once.
    """
    deployment = locked_deployment(policy)
    if expected is not None and deployment.checkpoint_id != expected.id:
        raise Conflict(f"{expected} is no longer serving; {deployment.checkpoint} is")
    if not reason.strip():
        raise InvalidInput("a rollback needs a reason", field="reason")
    before = deployment.checkpoint
    target = _rollback_target(deployment, version)
    refuse_without_files(target)
    Checkpoint.objects.filter(pk=before.pk).update(state=CheckpointState.RETIRED)
    _move(deployment, target, previous=before)
    audit(
        "roll back",
        "checkpoint",
        before,
        actor=actor,
        before={"serving": str(before)},
        after={"serving": str(target), "fence": deployment.fence},
        reason=reason,
    )
    return deployment


def reject(checkpoint: Checkpoint, *, actor: str, reason: str) -> None:
    """Only a person rejects: the checkpoint can no longer be promoted."""
    deployment = locked_deployment(checkpoint.policy)
    changed = Checkpoint.objects.filter(pk=checkpoint.pk, state__in=PROMOTABLE).update(state=CheckpointState.REJECTED)
    if not changed:
        raise Conflict(f"{checkpoint} is {checkpoint.state}; only a candidate or a canary can be rejected")
    if deployment.canary_id == checkpoint.id:
        deployment.canary, deployment.canary_share = None, 0.0
        deployment.fence += 1
        deployment.changed_at = timezone.now()
        deployment.save()
    UpdateRun.objects.filter(checkpoint=checkpoint, state=UpdateState.WAITING).update(
        state=UpdateState.HELD, finished_at=timezone.now()
    )
    audit("reject", "checkpoint", checkpoint, actor=actor, reason=reason)


def objection_to(checkpoint: Checkpoint, deployment: Deployment) -> str | None:
    """Why this promotion is not what the gate said, None when it is."""
    report = GateReport.objects.filter(checkpoint=checkpoint).order_by("-created_at").first()
    if report is None:
        return f"{checkpoint} has no gate report"
    if report.decision not in (Kind.PROMOTE, Kind.CANARY):
        return f"the gate said {report.decision} for {checkpoint}"
    if checkpoint.parent_id != deployment.checkpoint_id:
        return f"{checkpoint} was made from {checkpoint.parent}, but {deployment.checkpoint} is serving"
    return None


def locked_deployment(policy: Policy) -> Deployment:
    """The default alias under its row lock: moves are made one after the other. Raises NotFound."""
    # No joins: when another move has been waited for, PostgreSQL finds no row that still joins the old checkpoint.
    deployment = Deployment.objects.select_for_update().filter(policy=policy, alias="default").first()
    if deployment is None:
        raise NotFound(f"policy {policy.name!r} serves nothing yet", field="policy")
    return deployment


def refuse_without_files(checkpoint: Checkpoint) -> None:
    """Retention decides under the same lock, so what is not deleted now will not be once it serves."""
    if checkpoint.files_deleted_at is not None:
        raise Conflict(
            f"the files of {checkpoint} were deleted ({checkpoint.files_deleted_reason}); "
            f"`strop gc --rebuild {checkpoint}` may bring them back"
        )


def _rollback_target(deployment: Deployment, version: int | None) -> Checkpoint:
    serving = deployment.checkpoint
    if version is None:
        if serving.parent is None:
            raise Conflict(f"{serving} has no predecessor to go back to")
        return serving.parent
    found = Checkpoint.objects.select_related("policy").filter(
        policy=deployment.policy, version=version, state=CheckpointState.RETIRED
    )
    target = found.first()
    if target is None:
        raise Conflict(f"{deployment.policy.name}@{version} is no retired checkpoint of this policy", field="version")
    return target


def _move(deployment: Deployment, checkpoint: Checkpoint, *, previous: Checkpoint) -> None:
    """`previous` is what served until now: it answers on until an engine holds the new one. A canary ends here."""
    if deployment.canary_id not in (None, checkpoint.pk):
        Checkpoint.objects.filter(pk=deployment.canary_id, state=CheckpointState.CANARY).update(
            state=CheckpointState.CANDIDATE
        )
    Checkpoint.objects.filter(pk=checkpoint.pk).update(state=CheckpointState.SERVING)
    checkpoint.state = CheckpointState.SERVING
    deployment.checkpoint = checkpoint
    deployment.previous = previous
    deployment.canary = None
    deployment.canary_share = 0.0
    deployment.fence += 1
    deployment.changed_at = timezone.now()
    deployment.save()
