"""What a device costs while nobody asks it: the hours an engine was there, less those at work. Inside a tenant.

    idle of an hour = time engines were there - time answers were being made - time that updates held the device

One device is assumed, as everywhere here. An engine's hours are known from its reports; before the first of them
nothing is known, which is not the same as no idle time.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db.models import Max, Q

from feedback.models import BusyRollup
from feedback.rollups import HOUR, hour_of
from registry.models import DeviceRollup, PriceCard
from registry.price_cards import OWN_HARDWARE, card_at
from registry.pricing import Spend, spend_on_device
from rl_online.models import UpdateRun
from rl_online.spending.updates import MAX_UPDATES, spans


@dataclass(frozen=True, kw_only=True, slots=True)
class Idle:
    """A device's time in a span of whole hours; calls of the spend are hours."""

    held_seconds: Decimal  # an engine was there
    idle_seconds: Decimal
    spend: Spend
    known_since: datetime | None  # of the span, the first hour with a report; None: none


def idle_time(cards: Sequence[PriceCard], since: datetime, until: datetime) -> Idle:
    """Three queries."""
    span = {"hour__gte": since, "hour__lt": until}
    held = _by_hour(DeviceRollup.objects.filter(**span).values_list("hour").annotate(n=Max("held_ms")), 1_000)
    busy = _by_hour(BusyRollup.objects.filter(**span).values_list("hour", "busy_us"), 1_000_000)
    trained = _training(since, until)
    spend, idle = Spend(), Decimal(0)
    for hour, seconds in held.items():
        unused = max(Decimal(0), seconds - busy.get(hour, Decimal(0)) - trained.get(hour, Decimal(0)))
        card = card_at(cards, OWN_HARDWARE, hour)
        spend += spend_on_device(unused, card.device_hour_usd if card else None, calls=1)
        idle += unused
    return Idle(
        held_seconds=sum(held.values(), Decimal(0)), idle_seconds=idle, spend=spend, known_since=min(held, default=None)
    )


def _by_hour(rows: object, divisor: int) -> dict[datetime, Decimal]:
    return {hour: Decimal(n) / divisor for hour, n in rows}  # type: ignore[attr-defined]


def _training(since: datetime, until: datetime) -> dict[datetime, Decimal]:
    """Hour of the span -> seconds in it that an update held the device, whenever it was asked for."""
    runs = UpdateRun.objects.filter(Q(finished_at=None) | Q(finished_at__gt=since), started_at__lt=until)
    found: dict[datetime, Decimal] = defaultdict(Decimal)
    for start, end in (span for run in runs.order_by("-created_at")[:MAX_UPDATES] for span in spans(run)):
        start, end = max(start, since), min(end, until)
        while start < end:
            cut = min(end, hour_of(start) + HOUR)
            found[hour_of(start)] += Decimal(str((cut - start).total_seconds()))
            start = cut
    return found
