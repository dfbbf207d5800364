"""Job `rl_online.watch_canary`: looks at a running canary every minute, and carries out what the live gate decides.

Every look is kept. A shown loss ends the canary at once; a shown "not worse" promotes it where the plan promotes by
itself, and else waits for a person. The first such decision is written as a gate report, which stays; only a person who
starts the canary again opens the question anew.
"""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.utils import timezone

from feedback.users import UserArm, accept_share_by_user, arms_of_users
from jobs.services import ClaimedJob, enqueue
from registry.models import AuditEvent, Checkpoint, Deployment
from registry.services import LOOP, all_projects
from registry.tenancy import tenant
from rl_online.gate.decision import Kind
from rl_online.live_gate import LiveDecision, LiveEvidence, LiveLimits, User, decide_live
from rl_online.models import CanaryLook, GateReport, LearningPlan, Promotion, UpdateRun, UpdateState
from rl_online.services import notices
from rl_online.services.canaries import stop_canary
from rl_online.services.plans import live_limits
from rl_online.services.promotion import locked_deployment, objection_to, promote

WATCH_CANARY_JOB = "rl_online.watch_canary"
LOOK_EVERY_S = 60
BEFORE = timedelta(days=28)  # how far back a user's own past is looked at
HEARTBEAT = timedelta(hours=1)  # a look that saw nothing new is kept this often


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A canary that runs, since when, and by which limits it is judged."""

    deployment: Deployment
    canary: Checkpoint
    started_at: datetime
    limits: LiveLimits


def ask_to_look() -> None:
    """A job for every canary there is."""
    for project in all_projects():
        with tenant(project.id):
            for canary in Deployment.objects.filter(canary__isnull=False).values_list("canary_id", flat=True):
                payload = {"canary": str(canary)}
                enqueue(WATCH_CANARY_JOB, project_id=project.id, payload=payload, key=str(canary))


def watch_job(job: ClaimedJob) -> None:
    assert job.project_id is not None
    now = timezone.now()
    with tenant(job.project_id):
        experiment = running(UUID(job.payload["canary"]))
        if experiment is None:
            return
        decision = decide_live(evidence_of(experiment, now=now), experiment.limits)
        _keep(experiment, decision, now=now)
        acts = decision.kind is Kind.ROLL_BACK or not (decision.kind is Kind.EXTEND or _is_proven(experiment))
    if not acts:
        return
    with job.effect(), tenant(job.project_id):
        carry_out(experiment, decision)


def running(canary: UUID) -> Experiment | None:
    """None when this checkpoint is no canary (any more). Inside a tenant."""
    found = Deployment.objects.select_related("policy", "checkpoint__policy", "canary__policy")
    deployment = found.filter(canary_id=canary).first()
    if deployment is None or deployment.canary is None:
        return None
    start = AuditEvent.objects.filter(verb="start canary", object_kind="checkpoint", object_id=str(deployment.canary))
    return Experiment(
        deployment=deployment,
        canary=deployment.canary,
        started_at=start.latest("at").at,
        limits=live_limits(LearningPlan.objects.get(policy=deployment.policy)),
    )


def evidence_of(experiment: Experiment, *, now: datetime) -> LiveEvidence:
    """Users of both arms since the start. Who was answered by both (the share was changed) is left out and counted."""
    deployment, start = experiment.deployment, experiment.started_at
    policy, versions = deployment.policy.name, (experiment.canary.version, deployment.checkpoint.version)
    arms: defaultdict[int, dict[str, UserArm]] = defaultdict(dict)
    for arm in arms_of_users(policy, versions, since=start, until=now):
        arms[arm.version][arm.who] = arm
    new, old = (arms[version] for version in versions)
    crossed = new.keys() & old.keys()
    before = accept_share_by_user(policy, since=start - BEFORE, until=start)
    return LiveEvidence(
        canary=str(experiment.canary),
        serving=str(deployment.checkpoint),
        share=deployment.canary_share,
        days=(now - start) / timedelta(days=1),
        new=[_user(arm, before.get(who)) for who, arm in new.items() if who not in crossed],
        old=[_user(arm, before.get(who)) for who, arm in old.items() if who not in crossed],
        num_crossed=len(crossed),
    )


def carry_out(experiment: Experiment, decision: LiveDecision) -> GateReport | None:
    """Write the decision and do what it says, unless the canary is gone meanwhile."""
    deployment = locked_deployment(experiment.deployment.policy)
    if deployment.canary_id != experiment.canary.id:
        return None
    canary = Checkpoint.objects.select_related("policy", "parent__policy").get(pk=experiment.canary.pk)
    run = UpdateRun.objects.select_for_update(of=("self",)).filter(checkpoint=canary).first()
    report = GateReport.objects.create(
        checkpoint=canary, run=run, decision=decision.kind, reasons=list(decision.reasons), evidence=decision.to_json()
    )
    notices.tell_decided(report)
    plan = LearningPlan.objects.get(policy=deployment.policy)
    if decision.kind is Kind.PROMOTE:
        if plan.promotion == Promotion.AUTOMATIC and not objection_to(canary, deployment):
            promote(canary, actor=LOOP)
        return report
    stop_canary(deployment.policy, actor=LOOP, reason=decision.reasons[0])
    if run is not None and run.state == UpdateState.WAITING:
        run.state, run.finished_at = UpdateState.HELD, timezone.now()
        run.save(update_fields=["state", "finished_at"])
    return report


def _is_proven(experiment: Experiment) -> bool:
    """It was shown to be not worse, and waits for a person; it is still guarded."""
    return GateReport.objects.filter(
        checkpoint=experiment.canary,
        decision=Kind.PROMOTE,
        created_at__gte=experiment.started_at,
        evidence__stage="canary",
    ).exists()


def _keep(experiment: Experiment, decision: LiveDecision, *, now: datetime) -> None:
    """A row for this look, unless the last one says the very same and is fresh."""
    evidence = decision.to_json()
    last = CanaryLook.objects.filter(checkpoint=experiment.canary, started_at=experiment.started_at).order_by("-at")
    newest = last.first()
    if newest is not None and newest.at > now - HEARTBEAT and newest.reasons == list(decision.reasons):
        return
    CanaryLook.objects.create(
        checkpoint=experiment.canary,
        started_at=experiment.started_at,
        at=now,
        decision=decision.kind,
        reasons=list(decision.reasons),
        evidence=evidence,
    )


def _user(arm: UserArm, before: float | None) -> User:
    measured = {
        "error share": arm.num_errors / arm.num_turns,
        "retry share": arm.num_retried / arm.num_turns,
        "abandon share": arm.num_abandoned / arm.num_turns,
        "output tokens": arm.output_tokens,
        "latency": arm.latency_ms,
        "invalid tool calls": arm.bad_call_share,
        "questions back": arm.asks_back_share,
        "without an edit": arm.without_edit_share,
    }
    guards = {name: value for name, value in measured.items() if value is not None}
    return User(accept_share=arm.accept_share, accept_share_before=before, guards=guards)
