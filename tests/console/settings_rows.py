"""Rows that the settings pages show: members, keys, channels with deliveries, imports."""

import html
import re
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.utils import timezone

from registry.models import Member, Notice, NoticeDelivery, NotificationChannel, Project
from registry.services import create_key
from registry.tenancy import tenant
from rl_online.models import PolicyImport


def seen_on(page: str, action: str) -> str:
    """What the form of this address says it was filled from."""
    found = re.search(rf'action="{re.escape(action)}".*?name="seen" value="([^"]*)"', page, re.DOTALL)
    assert found is not None, f"no form for {action} with what it was filled from"
    return html.unescape(found[1])


def make_facts(project: Project) -> dict[str, Any]:
    """Ids for the table of addresses."""
    with tenant(project.id):
        return {
            "member": Member.objects.create(user=get_user_model().objects.create_user("spare"), role="viewer").pk,
            "key": create_key("spare", ["ingest"], actor="test")[1].prefix,
            "channel": make_channel().id,
        }


def make_channel(name: str = "on call", **columns: Any) -> NotificationChannel:
    defaults = {"kind": "email", "target": "ann@example.org", "events": ["update.failed"], "created_by": "owner"}
    return NotificationChannel.objects.create(name=name, **defaults | columns)


def make_delivery(channel: NotificationChannel, *, statuses: tuple[int | None, ...], title: str = "It failed") -> None:
    """One notice with an attempt for each status; the last one decides."""
    now = timezone.now()
    has_arrived = bool(statuses) and statuses[-1] is not None and statuses[-1] < 300
    NoticeDelivery.objects.create(
        notice=Notice.objects.create(kind="update.failed", payload={"title": title}),
        channel=channel,
        state="sent" if has_arrived else "waiting",
        sent_at=now if has_arrived else None,
        next_at=None if has_arrived else now + timedelta(seconds=30),
        attempts=[
            {"at": now.isoformat(), "status": status, "duration_ms": 81.5, "excerpt": "said <b>this</b>"}
            for status in statuses
        ],
    )


def make_import(name: str, state: str, **columns: Any) -> PolicyImport:
    return PolicyImport.objects.create(name=name, source="/srv/models/mine", state=state, requested_by="ann", **columns)
