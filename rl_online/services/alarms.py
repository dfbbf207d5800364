"""Keep the alarms of a project: look, open what is found, close what is over, tell people; and what people do then.

`watch` is a job's work, every half minute. The rules are in `rl_online.alarms`. Inside a tenant, but for the schedule.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import connection, transaction
from django.utils import timezone

from jobs.services import ClaimedJob, enqueue
from registry.errors import Conflict, InvalidInput, NotFound
from registry.models import NoticeKind, Project
from registry.notifications import emit
from registry.services import LOOP, all_projects, audit
from registry.tenancy import tenant
from rl_online.alarms import Finding, Rule, Verdict, budget, is_news, is_over, is_state
from rl_online.models import Alarm, AlarmState
from rl_online.services.observing import findings
from rl_online.spending import budgets

WATCH_JOB = "rl_online.watch"
HAVE_THEIR_OWN_NOTICE = (Rule.UPDATE_FAILED, Rule.JOBS_GIVEN_UP)  # told where they happen


def ask_to_watch() -> None:
    for project in all_projects():
        enqueue(WATCH_JOB, project_id=project.id, key=str(project.id))


def watch_job(job: ClaimedJob) -> None:
    assert job.project_id is not None
    with job.effect(), tenant(job.project_id):
        watch(job.project_id, now=timezone.now())


def watch(project_id: UUID, *, now: datetime) -> list[Alarm]:
    """Bring the alarms up to date; returns those that were opened."""
    found = budgets.standings(now)
    opened = settle(project_id, [*findings(project_id, now=now), *map(_of_budget, found)], now=now)
    budgets.mark_spent(found)
    return opened


def _of_budget(standing: budgets.Standing) -> Finding:
    return budget(
        str(standing.budget),
        spent_usd=standing.spend.cost_usd if standing.is_known else None,
        usd=standing.budget.usd,
        reached=standing.reached,
        since=standing.since,
        unpriced=standing.spend.unpriced,
    )


def settle(project_id: UUID, found: Sequence[Finding], *, now: datetime) -> list[Alarm]:
    """Open, renew and close alarms by what was found; one standing alarm of a rule and subject at most."""
    _wait_for_turn(project_id)
    standing = {(alarm.rule, alarm.subject): alarm for alarm in Alarm.objects.exclude(state=AlarmState.CLOSED)}
    opened = []
    for finding in found:
        alarm = standing.pop((finding.rule, finding.subject), None)
        if alarm is None:
            closed = _closed_by_a_person(finding)
            if is_news(finding, closed_about=None if closed is None else closed.about):
                opened.append(_open(project_id, finding, now))
            elif closed is not None:
                _follow(closed, finding, now)
        elif finding.verdict is Verdict.RAISED:
            _renew(alarm, finding, now)
        elif is_over(finding, raised_at=alarm.raised_at, now=now):
            _close(alarm, by="", note="", now=now)
    for alarm in standing.values():  # its policy is gone
        _close(alarm, by="", note="", now=now)
    return opened


def acknowledge(alarm_id: int, *, actor: str, note: str = "") -> Alarm:
    """Somebody looks after it. Raises NotFound, and Conflict when it is not open."""
    alarm = _locked(alarm_id)
    if alarm.state != AlarmState.OPEN:
        raise Conflict(f"this alarm is {alarm.state}")
    alarm.state, alarm.acknowledged_at, alarm.acknowledged_by = AlarmState.ACKNOWLEDGED, timezone.now(), actor
    alarm.note = note or alarm.note
    alarm.save(update_fields=["state", "acknowledged_at", "acknowledged_by", "note"])
    _audit("acknowledge", alarm, actor=actor, before=AlarmState.OPEN, reason=note)
    return alarm


def close(alarm_id: int, *, actor: str, note: str) -> Alarm:
    """It is dealt with: not opened again for the same occurrence. Raises NotFound, InvalidInput without a note."""
    alarm = _locked(alarm_id)
    if not alarm.is_standing:
        raise Conflict("this alarm is closed already")
    if not note.strip():
        raise InvalidInput("say what was done", field="note")
    _close(alarm, by=actor, note=note, now=timezone.now())
    return alarm


def _wait_for_turn(project_id: UUID) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"alarms:{project_id}"])


def _locked(alarm_id: int) -> Alarm:
    alarm = Alarm.objects.select_for_update().filter(pk=alarm_id).first()
    if alarm is None:
        raise NotFound("no such alarm")
    return alarm


def _closed_by_a_person(finding: Finding) -> Alarm | None:
    """The last one; None when nobody closed any, or its occurrence has ended since."""
    closed = Alarm.objects.filter(rule=finding.rule, subject=finding.subject, state=AlarmState.CLOSED)
    last = closed.exclude(closed_by="").order_by("-closed_at").first()
    return None if last is None or last.calm_at else last


def _follow(closed: Alarm, finding: Finding, now: datetime) -> None:
    """Watch what a person closed for the end of its occurrence, by the same patience that closes a standing one."""
    if finding.verdict is Verdict.RAISED:
        closed.raised_at = now
    elif is_state(Rule(closed.rule), about=closed.about) and is_over(finding, raised_at=closed.raised_at, now=now):
        closed.calm_at = now
    else:
        return
    closed.save(update_fields=["raised_at", "calm_at"])


def _open(project_id: UUID, finding: Finding, now: datetime) -> Alarm:
    alarm = Alarm.objects.create(
        rule=finding.rule,
        subject=finding.subject,
        severity=finding.rule.severity,
        summary=finding.summary,
        about=finding.about[:300],
        evidence=finding.evidence,
        opened_at=now,
        raised_at=now,
    )
    _audit("open", alarm, actor=LOOP, before=None, reason=finding.summary)
    _tell(NoticeKind(NoticeKind.ALARM_RAISED), project_id, alarm)
    return alarm


def _renew(alarm: Alarm, finding: Finding, now: datetime) -> None:
    is_new = alarm.about != finding.about[:300]
    alarm.raised_at, alarm.summary, alarm.evidence = now, finding.summary, finding.evidence
    alarm.about = finding.about[:300]
    alarm.save(update_fields=["raised_at", "summary", "evidence", "about"])
    if is_new and finding.rule.is_told_again:
        _tell(NoticeKind(NoticeKind.ALARM_RAISED), alarm.project_id, alarm)


def _close(alarm: Alarm, *, by: str, note: str, now: datetime) -> None:
    before = alarm.state
    alarm.state, alarm.closed_at, alarm.closed_by, alarm.note = AlarmState.CLOSED, now, by, note or alarm.note
    with transaction.atomic():
        alarm.save(update_fields=["state", "closed_at", "closed_by", "note"])
        _audit("close", alarm, actor=by or LOOP, before=before, reason=note or "its cause is gone")
        _tell(NoticeKind(NoticeKind.ALARM_CLEARED), alarm.project_id, alarm)


def _audit(verb: str, alarm: Alarm, *, actor: str, before: str | None, reason: str) -> None:
    audit(
        verb,
        "alarm",
        alarm.pk,
        actor=actor,
        before=None if before is None else {"state": before},
        after={"state": alarm.state, "rule": alarm.rule, "subject": alarm.subject},
        reason=reason,
    )


def _tell(kind: NoticeKind, project_id: UUID, alarm: Alarm) -> None:
    rule = Rule(alarm.rule)
    if rule in HAVE_THEIR_OWN_NOTICE:
        return
    slug = Project.objects.values_list("slug", flat=True).get(id=project_id)
    subject = f" ({alarm.subject})" if alarm.subject else ""
    is_raised = kind == NoticeKind.ALARM_RAISED
    emit(
        kind,
        project_id,
        {
            "title": f"{rule.heading}{subject}" if is_raised else f"Over: {rule.heading}{subject}",
            "path": f"/p/{slug}/alerts",
            "alarm": alarm.pk,
            "rule": alarm.rule,
            "severity": alarm.severity,
            "subject": alarm.subject,
            "summary": alarm.summary,
            "opened_at": alarm.opened_at.isoformat(),
            "closed_by": alarm.closed_by,
        },
        key=f"{alarm.pk} {alarm.about}" if rule.is_told_again and is_raised else str(alarm.pk),
    )
