"""Telling people what happened: a notice is written where it happens and delivered by jobs.

`emit` is called in the transaction of what it tells, so that neither is kept without the other. Each enabled channel
that asked for the kind gets one delivery, which is `sent` only once its receiver has said so; a receiver that was away
is tried again with growing pauses. Delivery is at least once: a receiver drops an id (`strop-delivery`) it has seen.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils import timezone

from jobs.services import enqueue
from registry.models import Notice, NoticeDelivery, NoticeKind, NotificationChannel
from registry.tenancy import tenant

DELIVER_JOB = "registry.deliver"
MAX_TEXT = 4_000  # characters of one value of a payload


def emit(kind: NoticeKind | str, project_id: UUID, payload: Mapping[str, Any], *, key: str | None = None) -> None:
    """Tell the project's channels that something happened, in the caller's transaction.

    `payload` is JSON: `title` (one line), `path` (of the page to look at, from the site's root, e.g. /p/editor/updates)
    and anything else a receiver may want. With `key`, the same kind and key is told once, however often it is emitted.
    """
    kind = NoticeKind(kind)
    with tenant(project_id):
        notice, is_new = _write(kind, _cut(payload), key)
        if not is_new:
            return
        channels = NotificationChannel.objects.filter(is_enabled=True, events__contains=[kind.value])
        for channel in channels:
            start_delivery(notice, channel)


def start_delivery(notice: Notice, channel: NotificationChannel) -> NoticeDelivery:
    """Inside the tenant; the delivery's first attempt is due at once."""
    delivery = NoticeDelivery.objects.create(notice=notice, channel=channel, next_at=timezone.now())
    ask_for_attempt(delivery, at=None)
    return delivery


def ask_for_attempt(delivery: NoticeDelivery, *, at: datetime | None) -> None:
    payload = {"delivery": delivery.pk}
    enqueue(DELIVER_JOB, project_id=delivery.project_id, payload=payload, key=f"{delivery.pk}", run_at=at)


def _write(kind: NoticeKind, payload: dict[str, Any], key: str | None) -> tuple[Notice, bool]:
    if key is None:
        return Notice.objects.create(kind=kind, payload=payload), True
    return Notice.objects.get_or_create(kind=kind, key=key, defaults={"payload": payload})


def _cut(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value[:MAX_TEXT] if isinstance(value, str) else value for name, value in payload.items()}
