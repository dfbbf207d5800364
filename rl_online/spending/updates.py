"""Training, by the device seconds that updates held."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from feedback.rollups import hour_of
from registry.models import PriceCard
from registry.price_cards import OWN_HARDWARE, card_at
from registry.pricing import spend_on_device
from rl_online.models import UpdateRun
from rl_online.spending.entries import Entry

MAX_UPDATES = 5_000


def training(cards: Sequence[PriceCard], since: datetime, until: datetime) -> list[Entry]:
    """Updates asked for in this time. One that failed or was cancelled held the device too."""
    runs = UpdateRun.objects.filter(started_at__isnull=False, created_at__gte=since, created_at__lt=until)
    entries = []
    for run in runs.select_related("policy").order_by("-created_at")[:MAX_UPDATES]:
        if (seconds := _seconds(run)) is None:
            continue  # still in training
        assert run.started_at is not None
        card = card_at(cards, OWN_HARDWARE, hour_of(run.started_at))
        entries.append(
            Entry(
                name=f"{run.policy.name}@{run.version}",
                policy=run.policy.name,
                version=run.version,
                purpose="training",
                spend=spend_on_device(seconds, card.device_hour_usd if card else None, calls=1),
                seconds=seconds,
                cards=frozenset({card.pk}) if card else frozenset(),
            )
        )
    return entries


def _seconds(run: UpdateRun) -> Decimal | None:
    if "train" in run.timings:
        return Decimal(str(run.timings["train"]))
    if run.finished_at is None:
        return None
    return sum((Decimal(str((end - start).total_seconds())) for start, end in spans(run)), Decimal(0))


def spans(run: UpdateRun) -> list[tuple[datetime, datetime]]:
    """When it held the device: as noted, else from its start for as long as it took, which is known at its end."""
    if run.held or run.started_at is None:
        return run.held_spans
    if "train" in run.timings:
        return [(run.started_at, run.started_at + timedelta(seconds=float(run.timings["train"])))]
    return [(run.started_at, run.finished_at)] if run.finished_at else []
