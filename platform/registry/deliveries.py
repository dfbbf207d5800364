"""Job `registry.deliver`: one attempt to bring one notice to one channel, and what follows from it.

The receiver is asked outside any transaction; what it answered, and that the job is done, are written in one. Killed in
between, the attempt is made again with the same `strop-delivery`, so a notice arrives at least once.
"""

import json
import random
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from jobs import crash
from jobs.models import Job
from jobs.services import ClaimedJob
from registry import mail, webhooks
from registry.models import (
    ChannelKind,
    DeliveryState,
    NoticeDelivery,
    NoticeKind,
    NotificationChannel,
    Project,
)
from registry.notifications import DELIVER_JOB, ask_for_attempt, emit
from registry.services import LOOP, audit
from registry.tenancy import tenant
from registry.webhooks import Attempt

RETRY_DELAYS_S = (5, 30, 120, 600, 3600)  # before attempt 2 to 6; after the last one it is given up
JITTER = 0.2  # of a delay, either way, so that a receiver that comes back is not met by all at once
DISABLE_AFTER = 5  # deliveries given up in a row


def deliver_job(job: ClaimedJob) -> None:
    assert job.project_id is not None
    with tenant(job.project_id):
        delivery = _find(job.payload["delivery"])
        if delivery is None or delivery.state != DeliveryState.WAITING:
            return
        project = Project.objects.get(id=job.project_id)
    attempt = _attempt(delivery, project)
    crash.point("task.registry.deliver.mid")
    with job.effect(), tenant(job.project_id):
        _record(delivery, attempt)


def body_of(delivery: NoticeDelivery, project: Project) -> dict[str, Any]:
    """What a receiver gets."""
    notice = delivery.notice
    path = notice.payload.get("path")
    return {
        "id": str(notice.id),
        "event": notice.kind,
        "project": project.slug,
        "at": notice.at.isoformat(),
        "url": settings.PUBLIC_URL + path if isinstance(path, str) else settings.PUBLIC_URL,
        "data": {name: value for name, value in notice.payload.items() if name != "path"},
    }


def delay_after(num_attempts: int, *, chance: float) -> float | None:
    """Seconds until the next attempt, `chance` in [0, 1) choosing within the jitter; None: give up."""
    if num_attempts > len(RETRY_DELAYS_S):
        return None
    return RETRY_DELAYS_S[num_attempts - 1] * (1 + JITTER * (2 * chance - 1))


def on_job_quarantined(job: Job) -> None:
    """In the transaction that gives the job up. A delivery's own job tells nobody: that would go round in circles."""
    if job.project_id is None:
        return
    if job.kind == DELIVER_JOB:
        with tenant(job.project_id):
            NoticeDelivery.objects.filter(pk=job.payload["delivery"], state=DeliveryState.WAITING).update(
                state=DeliveryState.GIVEN_UP, next_at=None
            )
        return
    with tenant(job.project_id):
        if not Project.objects.filter(id=job.project_id).exists():
            return
    last_line = job.last_error.strip().splitlines()[-1:] or ["unknown"]
    emit(
        NoticeKind(NoticeKind.JOB_QUARANTINED),
        job.project_id,
        {"title": f"Job {job.kind} was given up", "job": job.pk, "job_kind": job.kind, "error": last_line[0]},
        key=f"{job.pk}:{job.fence}",
    )


def _find(pk: int) -> NoticeDelivery | None:
    return NoticeDelivery.objects.select_related("notice", "channel").filter(pk=pk).first()


def _attempt(delivery: NoticeDelivery, project: Project) -> Attempt:
    channel, body = delivery.channel, body_of(delivery, project)
    if channel.kind == ChannelKind.EMAIL:
        title = str(body["data"].get("title") or delivery.notice.get_kind_display())
        facts = {name: value for name, value in body["data"].items() if name != "title"}
        return mail.send(channel.target, subject=f"[Strop {project.slug}] {title}", facts=facts, link=body["url"])
    text = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    return webhooks.post(channel.target, text, secret=webhooks.secret_of(channel), delivery=str(delivery.pk))


def _record(delivery: NoticeDelivery, attempt: Attempt) -> None:
    """Append the attempt and decide what follows; never `sent` but for an answer that says so."""
    now = timezone.now()
    # The channel is locked first and always: two deliveries that end at once count both.
    channel = NotificationChannel.objects.select_for_update().get(pk=delivery.channel_id)
    row = NoticeDelivery.objects.select_for_update().get(pk=delivery.pk)
    row.attempts = [
        *row.attempts,
        {
            "at": now.isoformat(),
            "status": attempt.status,
            "duration_ms": attempt.duration_ms,
            "excerpt": attempt.excerpt,
        },
    ]
    delay_s = None if attempt.is_final else delay_after(len(row.attempts), chance=random.random())
    row.next_at = None
    if attempt.has_arrived:
        row.state, row.sent_at = DeliveryState.SENT, now
        channel.num_failures_in_row = 0
    elif delay_s is not None and channel.is_enabled:
        row.next_at = now + timedelta(seconds=delay_s)
        ask_for_attempt(row, at=row.next_at)
    else:
        row.state = DeliveryState.GIVEN_UP
        _count_failure(channel, attempt)
    row.save(update_fields=["attempts", "state", "sent_at", "next_at"])
    channel.save(update_fields=["num_failures_in_row", "is_enabled", "disabled_reason"])


def _count_failure(channel: NotificationChannel, attempt: Attempt) -> None:
    channel.num_failures_in_row += 1
    if not channel.is_enabled or (channel.num_failures_in_row < DISABLE_AFTER and attempt.status != 410):
        return
    gone = "the receiver answered 410: gone"
    many = f"{channel.num_failures_in_row} deliveries in a row were given up; the last: {attempt.excerpt}"
    channel.is_enabled = False
    channel.disabled_reason = (gone if attempt.status == 410 else many)[:300]
    audit("disable", "notification channel", channel.name, actor=LOOP, reason=channel.disabled_reason)
