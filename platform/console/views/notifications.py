"""Settings -> Notifications: channels, what each is told, and what became of every notice."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console import stale_forms
from console.access import MemberRequest, carry_out, member_required
from console.reads import notifications as reads
from console.stale_forms import Outdated
from registry import channels as service
from registry import webhooks
from registry.errors import InvalidInput, StropError
from registry.models import ChannelKind, NotificationChannel, Role

FACTS = {"target": "Address", "events": "Is told when"}


@require_safe
@member_required(Role.ENGINEER)
def notifications(request: MemberRequest) -> HttpResponse:
    return _page(request)


@require_POST
@member_required(Role.ENGINEER)
def create(request: MemberRequest) -> HttpResponse:
    sent = request.POST
    try:
        with transaction.atomic():
            channel = service.create_channel(
                sent.get("name", ""),
                sent.get("kind", ""),
                sent.get("target", ""),
                sent.getlist("events"),
                actor=request.user.get_username(),
            )
    except StropError as error:
        return _page(request, error=error)
    return redirect("console:channel", request.member.project.slug, channel.id)


@require_safe
@member_required(Role.ENGINEER)
def channel(request: MemberRequest, channel: UUID) -> HttpResponse:
    """One channel with its log of deliveries."""
    found = service.find_channel(channel)
    context = {
        "channel": found,
        **_form(found),
        "page": reads.page_of_deliveries(found, request.GET.get("page")),
        "secret": webhooks.secret_of(found) if found.kind == ChannelKind.WEBHOOK else None,
    }
    return render(request, "settings/channel.html", context)


@require_POST
@member_required(Role.ENGINEER)
def change(request: MemberRequest, channel: UUID) -> HttpResponse:
    sent, back = request.POST, _channel_page(request, channel)
    found = service.find_channel(channel)
    try:
        with transaction.atomic():
            stale_forms.check(sent, _facts(service.locked_channel(channel)), FACTS)
            changed = service.change_channel(
                channel,
                actor=request.user.get_username(),
                target=sent.get("target"),
                events=sent.getlist("events"),
            )
    except (InvalidInput, Outdated) as error:
        return stale_forms.refused(
            request,
            error,
            form="settings/_channel_form.html",
            title=found.name,
            back=back,
            saved=stale_forms.last_save("notification channel", found.name),
            channel=found,
            **_form(service.find_channel(channel))
            | {"filled": {"target": sent.get("target", ""), "events": sent.getlist("events")}},
        )
    messages.success(request, f"{changed.name} is changed.")
    return redirect(back)


@require_POST
@member_required(Role.ENGINEER)
def switch(request: MemberRequest, channel: UUID) -> HttpResponse:
    def act() -> str:
        is_on = request.POST.get("to") == "on"
        changed = service.change_channel(channel, actor=request.user.get_username(), is_enabled=is_on)
        return f"{changed.name} is switched {'on' if is_on else 'off'}."

    return carry_out(request, act, back=_channel_page(request, channel))


@require_POST
@member_required(Role.ENGINEER)
def test(request: MemberRequest, channel: UUID) -> HttpResponse:
    def act() -> str:
        service.send_test(channel, actor=request.user.get_username())
        return "A test notice is on its way; the log below shows what becomes of it."

    return carry_out(request, act, back=_channel_page(request, channel))


@require_POST
@member_required(Role.ENGINEER)
def renew_secret(request: MemberRequest, channel: UUID) -> HttpResponse:
    def act() -> str:
        return f"{service.renew_secret(channel, actor=request.user.get_username()).name} signs with a new secret."

    return carry_out(request, act, back=_channel_page(request, channel))


@require_POST
@member_required(Role.ENGINEER)
def remove(request: MemberRequest, channel: UUID) -> HttpResponse:
    def act() -> str:
        return f"{service.remove_channel(channel, actor=request.user.get_username())} is removed."

    return carry_out(request, act, back=reverse("console:notifications", args=[request.member.project.slug]))


def _facts(channel: NotificationChannel) -> dict[str, Any]:
    """What the channel's form changes."""
    return {"target": channel.target, "events": channel.events}


def _form(channel: NotificationChannel) -> dict[str, Any]:
    now = _facts(channel)
    return {"choices": service.CHOICES, "filled": now, "seen": stale_forms.seen(now)}


def _page(request: MemberRequest, error: StropError | None = None) -> HttpResponse:
    context = {
        "rows": reads.channel_rows(),
        "choices": service.CHOICES,
        "mail": reads.mail_route(),
        "problem": error.message if error else "",
        "wrong": error.field if error else "",
        "sent": request.POST,
        "sent_events": request.POST.getlist("events"),
    }
    return render(request, "settings/notifications.html", context, status=error.status if error else 200)


def _channel_page(request: MemberRequest, channel: UUID) -> str:
    return reverse("console:channel", args=[request.member.project.slug, channel])
