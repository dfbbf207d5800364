"""What the alarm rules look at, read from the rows of one project. Inside a tenant; nothing here changes a row.

Every read is bounded: by the project, and by time or by an index that holds only what still waits.
"""

from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Max, Sum

from feedback.hourly import Origin, Share, Span, shares
from feedback.models import SignalRollup, Turn, TurnRollup, UserSignal
from feedback.services.door import label_wait_s
from jobs.models import Job, JobState, ProcessBeat
from registry.models import AuditEvent, Checkpoint, Deployment, Policy
from rl_online import alarms
from rl_online.alarms import Finding, Window
from rl_online.models import EngineHolding, GateReport, LearningPlan, UpdateRun, UpdateState
from rl_online.services.drift import drifts
from rl_online.services.holdings import REPORT_HOLDS_FOR

SHARES_REACH = timedelta(days=90)  # of the turns that the two serving windows are made of
DAY = timedelta(days=1)
STILL_COMING = timedelta(minutes=5)  # a signal whose turn may yet come is no orphan
OVER = [state for state in UpdateState.values if UpdateState(state).is_over]


def findings(project_id: UUID, *, now: datetime) -> list[Finding]:
    """What every rule says now, about the project and about each policy that serves."""
    found = [_silence(now), _orphans(now), _label_lag(project_id, now), _jobs_given_up(project_id)]
    deployments = Deployment.objects.select_related("policy", "checkpoint__policy", "previous__policy")
    for deployment in deployments.filter(alias="default").order_by("policy__created_at"):
        policy = deployment.policy
        found += [
            _share_drop(deployment, now),
            *(drift.finding for drift in drifts(deployment, now=now)),
            _update_failed(policy),
            _engine_away(deployment, now),
            _gate_held(policy),
            _paused(policy),
        ]
    return found


def _share_drop(deployment: Deployment, now: datetime) -> Finding:
    """Both windows in whole hours: the hour of the change counts for both sides, each with its own turns."""
    name = deployment.policy.name
    span = Span.in_hours(now - SHARES_REACH, now)
    compared = [one.version for one in (deployment.checkpoint, deployment.previous) if one is not None]
    found = {share.origin: share for share in shares(span, policy=name, versions=compared, is_divided=False)}
    before = None if deployment.previous is None else _window(deployment.previous, found)
    return alarms.share_drop(name, now=_window(deployment.checkpoint, found), before=before)


def _window(checkpoint: Checkpoint, found: dict[Origin, Share]) -> Window:
    share = found.get(Origin(policy=checkpoint.policy.name, version=checkpoint.version))
    if share is None:
        return Window(checkpoint=str(checkpoint), turns=0, share=None, low=0.0, high=1.0)
    bounds = share.bounds
    return Window(checkpoint=str(checkpoint), turns=share.turns, share=share.value, low=bounds.low, high=bounds.high)


def _silence(now: datetime) -> Finding:
    newest = [
        Turn.objects.filter(at__lte=now).order_by("-at").values_list("at", flat=True).first(),
        UserSignal.objects.filter(at__lte=now).order_by("-at").values_list("at", flat=True).first(),
    ]
    last_at = max((at for at in newest if at is not None), default=None)
    if last_at is None:
        return alarms.silence(last_at=None, items_before=0, now=now)
    span = Span.in_hours(last_at - DAY, last_at)
    day = {"hour__gte": span.start, "hour__lt": span.end}
    turns = TurnRollup.objects.filter(**day).aggregate(n=Sum("turns"))["n"] or 0
    signals = SignalRollup.objects.filter(**day).aggregate(n=Sum("signals"))["n"] or 0
    return alarms.silence(last_at=last_at, items_before=turns + signals, now=now)


def _orphans(now: datetime) -> Finding:
    span = Span.in_hours(now - DAY, now)
    total = SignalRollup.objects.filter(hour__gte=span.start, hour__lt=span.end).aggregate(n=Sum("signals"))["n"] or 0
    waiting = UserSignal.objects.filter(
        turn=None, turn_ref__isnull=False, expired_at=None, at__gte=span.start, received_at__lt=now - STILL_COMING
    )
    return alarms.orphans(num_orphans=waiting.count(), num_signals=total)


def _label_lag(project_id: UUID, now: datetime) -> Finding:
    due = Turn.objects.filter(settled_at=None, settle_due__lt=now - timedelta(seconds=alarms.MAX_LABEL_WAIT_S))
    oldest = due.order_by("settle_due").values_list("settle_due", flat=True).first()
    waits = [label_wait_s(project_id), (now - oldest).total_seconds() if oldest else 0.0]
    return alarms.label_lag(wait_s=max(waits))


def _jobs_given_up(project_id: UUID) -> Finding:
    jobs = Job.objects.filter(project_id=project_id, state=JobState.QUARANTINED).order_by("-id")
    rows = list(jobs.values_list("id", "kind")[:1000])
    return alarms.jobs_given_up(kinds=[kind for _, kind in rows], newest_id=rows[0][0] if rows else None)


def _update_failed(policy: Policy) -> Finding:
    last = UpdateRun.objects.select_related("policy").filter(policy=policy, state__in=OVER).order_by("-version").first()
    if last is None or last.state != UpdateState.FAILED:
        return alarms.update_failed(policy.name, run_id=None)
    return alarms.update_failed(policy.name, run_id=str(last.id), title=str(last), error=last.error)


def _engine_away(deployment: Deployment, now: datetime) -> Finding:
    holding = EngineHolding.objects.filter(
        checkpoint=deployment.checkpoint,
        tree_digest=deployment.checkpoint.tree_digest,
        error="",
        reported_at__gt=now - REPORT_HOLDS_FOR,
    )
    return alarms.engine_away(
        deployment.policy.name,
        serving=str(deployment.checkpoint),
        num_engines=holding.count(),
        since=max(deployment.changed_at, _up_since() or deployment.changed_at),
        now=now,
    )


def _up_since() -> datetime | None:
    """When this Strop was started last: until then nobody expected an engine to say anything."""
    return ProcessBeat.objects.filter(kind="beat").aggregate(last=Max("started_at"))["last"]


def _gate_held(policy: Policy) -> Finding:
    reports = GateReport.objects.select_related("checkpoint__policy").filter(checkpoint__policy=policy)
    newest = list(reports.exclude(decision="extend").order_by("-created_at")[:20])
    return alarms.gate_held(
        policy.name,
        decisions=[report.decision for report in newest],
        newest=str(newest[0].checkpoint) if newest else "",
    )


def _paused(policy: Policy) -> Finding:
    plan = LearningPlan.objects.filter(policy=policy).first()
    if plan is None or not plan.is_paused:
        return alarms.paused(policy.name, is_paused=False)
    pauses = AuditEvent.objects.filter(verb="pause", object_kind="learning plan", object_id=policy.name)
    return alarms.paused(policy.name, is_paused=True, since=pauses.order_by("-at").values_list("at", flat=True).first())
