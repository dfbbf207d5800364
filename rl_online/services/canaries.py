"""A part of the traffic for a candidate: start, change the share, stop. Every step is audited. Inside a tenant.

Who gets the canary is decided per user (services.routing): a larger share keeps everyone who was in the smaller one.
A canary that is promoted, rejected or rolled past ends in `services.promotion`.
"""

import math

from django.utils import timezone

from registry.errors import Conflict, InvalidInput
from registry.models import Checkpoint, CheckpointState, Deployment, Policy
from registry.services import LOOP, audit
from rl_online.services.promotion import locked_deployment, objection_to, refuse_without_files

MAX_SHARE = 0.5  # what a person may give a canary; more is a promotion


def start_canary(checkpoint: Checkpoint, *, share: float, actor: str, reason: str = "") -> Deployment:
    """Let a candidate answer `share` of the users. Against the gate's word a person needs a reason."""
    deployment = locked_deployment(checkpoint.policy)
    checkpoint.refresh_from_db()
    if deployment.canary is not None:
        raise Conflict(f"{deployment.canary} is the canary; stop it first")
    if checkpoint.state != CheckpointState.CANDIDATE:
        raise Conflict(f"{checkpoint} is {checkpoint.state}; only a candidate can become a canary")
    refuse_without_files(checkpoint)
    if actor != LOOP:
        _check_share(share)
        objection = objection_to(checkpoint, deployment)
        if objection and not reason.strip():
            raise InvalidInput(f"{objection}; giving it traffic all the same needs a reason", field="reason")
    _set_state(checkpoint, CheckpointState.CANARY)
    _route(deployment, checkpoint, share)
    audit(
        "start canary",
        "checkpoint",
        checkpoint,
        actor=actor,
        after={"share": share, "fence": deployment.fence},
        reason=reason,
    )
    return deployment


def change_canary_share(policy: Policy, *, share: float, actor: str, reason: str = "") -> Deployment:
    """Give the canary more or less, never nothing: that is `stop_canary`."""
    deployment = locked_deployment(policy)
    canary = _canary_of(deployment)
    _check_share(share)
    before = deployment.canary_share
    _route(deployment, canary, share)
    audit(
        "change canary share",
        "checkpoint",
        canary,
        actor=actor,
        before={"share": before},
        after={"share": share, "fence": deployment.fence},
        reason=reason,
    )
    return deployment


def stop_canary(policy: Policy, *, actor: str, reason: str = "") -> Deployment:
    """The serving checkpoint answers everyone again; the canary is a candidate as before."""
    deployment = locked_deployment(policy)
    canary = _canary_of(deployment)
    before = deployment.canary_share
    _set_state(canary, CheckpointState.CANDIDATE)
    _route(deployment, None, 0.0)
    audit(
        "stop canary",
        "checkpoint",
        canary,
        actor=actor,
        before={"share": before},
        after={"share": 0, "fence": deployment.fence},
        reason=reason,
    )
    return deployment


def _canary_of(deployment: Deployment) -> Checkpoint:
    if deployment.canary is None:
        raise Conflict(f"{deployment.policy.name} has no canary")
    return deployment.canary


def _check_share(share: float) -> None:
    if not (math.isfinite(share) and 0 < share <= MAX_SHARE):
        raise InvalidInput(f"found {share:.0%}; give more than 0 and at most {MAX_SHARE:.0%}", field="share")


def _set_state(checkpoint: Checkpoint, state: str) -> None:
    Checkpoint.objects.filter(pk=checkpoint.pk).update(state=state)
    checkpoint.state = state


def _route(deployment: Deployment, canary: Checkpoint | None, share: float) -> None:
    deployment.canary, deployment.canary_share = canary, share
    deployment.fence += 1
    deployment.changed_at = timezone.now()
    deployment.save()
