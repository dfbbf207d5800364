"""Where a project's notices go: make, change, test, switch on and off, remove. Inside a tenant."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.utils import timezone

from registry import outbound
from registry.errors import Conflict, InvalidInput, NotFound
from registry.models import ChannelKind, Notice, NoticeDelivery, NoticeKind, NotificationChannel
from registry.notifications import start_delivery
from registry.services import audit

CHOICES = tuple(NoticeKind(value) for value in NoticeKind.values if value != NoticeKind.TEST)
MAX_CHANNELS = 50


def channels() -> list[NotificationChannel]:
    return list(NotificationChannel.objects.order_by("created_at"))


def find_channel(channel_id: UUID) -> NotificationChannel:
    channel = NotificationChannel.objects.filter(id=channel_id).first()
    if channel is None:
        raise NotFound("no such channel in this project", field="channel")
    return channel


def create_channel(name: str, kind: str, target: str, events: Sequence[str], *, actor: str) -> NotificationChannel:
    """Raises InvalidInput naming the field; a webhook's address is checked as the outbound door will check it."""
    name, target = name.strip(), target.strip()
    if not 0 < len(name) <= 120:
        raise InvalidInput("give a name of at most 120 characters", field="name")
    if NotificationChannel.objects.filter(name=name).exists():
        raise Conflict(f"a channel {name!r} exists; choose another name", field="name")
    if NotificationChannel.objects.count() >= MAX_CHANNELS:
        raise Conflict(f"a project has at most {MAX_CHANNELS} channels; remove one first")
    channel = NotificationChannel(
        name=name, kind=_kind(kind), target=_target(kind, target), events=_events(events), created_by=actor
    )
    channel.save(force_insert=True)
    after = {"kind": kind, "to": destination(channel), "events": channel.events}
    audit("create", "notification channel", name, actor=actor, after=after)
    return channel


def change_channel(
    channel_id: UUID,
    *,
    actor: str,
    target: str | None = None,
    events: Sequence[str] | None = None,
    is_enabled: bool | None = None,
) -> NotificationChannel:
    """What is None stays. Switched on again, a channel starts without failures."""
    channel = locked_channel(channel_id)
    before, old_target = _facts(channel), channel.target
    if target is not None:
        channel.target = _target(channel.kind, target.strip())
    if events is not None:
        channel.events = _events(events)
    if is_enabled is not None and is_enabled != channel.is_enabled:
        channel.is_enabled, channel.num_failures_in_row = is_enabled, 0
        channel.disabled_reason = "" if is_enabled else f"switched off by {actor}"[:300]
    channel.save()
    after = _facts(channel) | {"target_changed": channel.target != old_target}
    audit("change", "notification channel", channel.name, actor=actor, before=before, after=after)
    return channel


def renew_secret(channel_id: UUID, *, actor: str) -> NotificationChannel:
    """From now on another secret signs; the old one is worth nothing at once."""
    channel = locked_channel(channel_id)
    channel.secret_version += 1
    channel.save(update_fields=["secret_version"])
    audit("renew secret", "notification channel", channel.name, actor=actor)
    return channel


def remove_channel(channel_id: UUID, *, actor: str) -> str:
    channel = locked_channel(channel_id)
    audit("remove", "notification channel", channel.name, actor=actor, before={"kind": channel.kind} | _facts(channel))
    channel.delete()
    return channel.name


def send_test(channel_id: UUID, *, actor: str) -> NoticeDelivery:
    """A notice to this channel alone, delivered like any other, also where it is switched off."""
    channel = find_channel(channel_id)
    payload = {"title": f"A test of {channel.name}", "asked_by": actor, "path": _page(channel)}
    notice = Notice.objects.create(kind=NoticeKind.TEST, payload=payload, at=timezone.now())
    audit("send test", "notification channel", channel.name, actor=actor, after={"to": destination(channel)})
    return start_delivery(notice, channel)


def destination(channel: NotificationChannel) -> str:
    """Where its notices go, for the audit trail: an e-mail address, or a webhook's host without its secret path."""
    if channel.kind == ChannelKind.EMAIL:
        return channel.target
    return outbound.site_of(channel.target)


def _facts(channel: NotificationChannel) -> dict[str, Any]:
    return {"to": destination(channel), "events": channel.events, "enabled": channel.is_enabled}


def _page(channel: NotificationChannel) -> str:
    return f"/p/{channel.project.slug}/settings/notifications"


def locked_channel(channel_id: UUID) -> NotificationChannel:
    """As it is by now; nobody else changes it before the transaction around this ends. Raises NotFound."""
    find_channel(channel_id)
    return NotificationChannel.objects.select_for_update().get(id=channel_id)


def _kind(kind: str) -> ChannelKind:
    if kind not in ChannelKind.values:
        raise InvalidInput(f"found {kind!r}; choose from {', '.join(ChannelKind.values)}", field="kind")
    return ChannelKind(kind)


def _target(kind: str, target: str) -> str:
    if len(target) > 500:
        raise InvalidInput("is longer than 500 characters", field="target")
    if kind == ChannelKind.WEBHOOK:
        return outbound.check_url(target, field="target")
    try:
        validate_email(target)
    except ValidationError:
        raise InvalidInput(f"found {target[:80]!r}; give one e-mail address", field="target") from None
    return target


def _events(events: Sequence[str]) -> list[str]:
    known = [kind.value for kind in CHOICES]
    wrong = [event for event in events if event not in known]
    if wrong or not events:
        raise InvalidInput(f"found {', '.join(wrong) or 'none'}; choose from {', '.join(known)}", field="events")
    return sorted(set(events))
