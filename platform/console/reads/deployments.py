"""What each alias serves, with which shares, who really answered, and how it came to be."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count

from console.timerange import TimeRange
from feedback.models import Turn
from registry.models import AuditEvent, Checkpoint, CheckpointState, Deployment, Policy
from rl_online.models import GateReport
from rl_online.services.holdings import is_held

VERBS = (
    "deploy",
    "promote",
    "promote against the gate",
    "roll back",
    "start canary",
    "change canary share",
    "stop canary",
    "reject",
)
TRAFFIC = ("production", "simulated")
NUM_EVENTS = 100
NUM_CHOICES = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """One checkpoint behind an alias."""

    role: str  # serving | canary | previous
    checkpoint: Checkpoint
    share: float  # of users, as configured
    is_held: bool  # by some engine, by its right digest
    num_answered: int  # turns in the time range
    observed: float | None  # its part of all turns of the policy in the range; None: there were none


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A checkpoint an alias could be moved to."""

    checkpoint: Checkpoint
    decision: str | None  # of its newest gate report


def deployment_of(policy: Policy, alias: str = "default") -> Deployment | None:
    found = Deployment.objects.select_related(
        "policy", "checkpoint__policy", "checkpoint__parent__policy", "previous__policy", "canary__policy"
    )
    return found.filter(policy=policy, alias=alias).first()


def targets(deployment: Deployment, time_range: TimeRange) -> list[Target]:
    answered = _answered(deployment.policy, time_range)
    total = sum(answered.values())
    canary = deployment.canary
    found = [("serving", deployment.checkpoint, 1.0 - (deployment.canary_share if canary else 0.0))]
    if canary is not None:
        found.append(("canary", canary, deployment.canary_share))
    if deployment.previous is not None and not is_held(deployment.checkpoint):
        found.append(("previous", deployment.previous, 0.0))
    return [
        Target(
            role=role,
            checkpoint=checkpoint,
            share=share,
            is_held=is_held(checkpoint),
            num_answered=answered.get(checkpoint.version, 0),
            observed=answered.get(checkpoint.version, 0) / total if total else None,
        )
        for role, checkpoint, share in found
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A piece of the bar over the table, in percent of its width."""

    version: int
    x: float
    width: float


def bar(shown: Sequence[Target]) -> list[Part]:
    """The configured shares side by side."""
    parts, x = [], 0.0
    for target in shown:
        parts.append(Part(version=target.checkpoint.version, x=x, width=100 * target.share))
        x += 100 * target.share
    return parts


def answered_by_others(deployment: Deployment, time_range: TimeRange, shown: Sequence[Target]) -> dict[int, int]:
    """Version -> turns it answered in the range, for versions that the alias does not point to now."""
    now = {target.checkpoint.version for target in shown}
    found = _answered(deployment.policy, time_range)
    return {version: n for version, n in sorted(found.items(), reverse=True) if version not in now}


def _answered(policy: Policy, time_range: TimeRange) -> dict[int, int]:
    turns = Turn.objects.filter(time_range.within("at"), policy=policy.name, version__isnull=False, source__in=TRAFFIC)
    return dict(turns.values_list("version").annotate(n=Count("id")))


def candidates(policy: Policy) -> list[Choice]:
    """What could be promoted or become a canary, newest first."""
    return _choices(policy, CheckpointState.CANDIDATE)


def retired(policy: Policy) -> list[Choice]:
    """What could serve again, newest first."""
    return _choices(policy, CheckpointState.RETIRED)


def history(policy: Policy) -> list[AuditEvent]:
    """Every move of the line, newest first."""
    moves = AuditEvent.objects.filter(verb__in=VERBS)
    mine = moves.filter(object_kind="checkpoint", object_id__startswith=f"{policy.name}@") | moves.filter(
        object_kind="policy", object_id=policy.name
    )
    return list(mine.order_by("-at", "-id")[:NUM_EVENTS])


def _choices(policy: Policy, state: str) -> list[Choice]:
    found = Checkpoint.objects.filter(policy=policy, state=state, files_deleted_at=None).select_related("policy")
    checkpoints = list(found.order_by("-version")[:NUM_CHOICES])
    decisions: dict[object, str] = {}
    for report in GateReport.objects.filter(checkpoint__in=checkpoints).order_by("created_at"):
        decisions[report.checkpoint_id] = report.decision
    return [Choice(checkpoint=one, decision=decisions.get(one.id)) for one in checkpoints]
