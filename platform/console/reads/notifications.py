"""Channels and their deliveries as their pages show them. Inside a tenant."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.core.paginator import Page, Paginator
from django.db.models import Count, Max, Q
from django.utils import timezone

from registry.models import DeliveryState, NoticeDelivery, NotificationChannel

PAGE = 50
LATELY = timedelta(days=30)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelRow:
    channel: NotificationChannel
    num_sent: int
    num_waiting: int
    num_given_up: int
    last_at: datetime | None  # when a notice last arrived


def channel_rows() -> list[ChannelRow]:
    """Every channel with how its deliveries of the last 30 days went, in one query."""
    lately = Q(deliveries__created_at__gte=timezone.now() - LATELY)
    found = NotificationChannel.objects.order_by("created_at").annotate(
        num_sent=Count("deliveries", filter=lately & Q(deliveries__state=DeliveryState.SENT)),
        num_waiting=Count("deliveries", filter=lately & Q(deliveries__state=DeliveryState.WAITING)),
        num_given_up=Count("deliveries", filter=lately & Q(deliveries__state=DeliveryState.GIVEN_UP)),
        last_at=Max("deliveries__sent_at"),
    )
    return [
        ChannelRow(
            channel=one,
            num_sent=one.num_sent,
            num_waiting=one.num_waiting,
            num_given_up=one.num_given_up,
            last_at=one.last_at,
        )
        for one in found
    ]


def page_of_deliveries(channel: NotificationChannel, number: str | None) -> "Page[NoticeDelivery]":
    rows = NoticeDelivery.objects.filter(channel=channel).select_related("notice").order_by("-created_at", "-pk")
    return Paginator(rows, PAGE).get_page(number)


def mail_route() -> str:
    """Where e-mail goes, in words; empty where it really leaves this machine."""
    if settings.EMAIL.is_delivered:
        return ""
    return "files in the home's folder mail" if settings.EMAIL.folder else "the worker's terminal"
