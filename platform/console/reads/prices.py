"""Price cards with the time each is valid, and models that have none. Inside a tenant."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Sum
from django.utils import timezone

from evals.models import EvalRun, JudgeCall
from feedback.models import TurnRollup
from registry.models import PriceCard

LOOK_BACK = timedelta(days=90)
MAX_MODELS = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class DatedCard:
    card: PriceCard
    valid_to: datetime | None  # None: still valid, or to become so
    state: str  # past | now | to come


@dataclass(frozen=True, kw_only=True, slots=True)
class Unpriced:
    """An external model that was used lately and never had a price."""

    model: str
    calls: int


def dated(cards: Sequence[PriceCard]) -> list[DatedCard]:
    """In the order given, which is the newest first within a model."""
    now = timezone.now()
    found: list[DatedCard] = []
    following: dict[str, datetime] = {}
    for card in cards:
        end = following.get(card.model)
        following[card.model] = card.valid_from
        state = "to come" if card.valid_from > now else "now" if end is None or end > now else "past"
        found.append(DatedCard(card=card, valid_to=end, state=state))
    return found


def unpriced_models(cards: Sequence[PriceCard]) -> list[Unpriced]:
    """Turns, judges and runs of the last 90 days; those with most calls first. Three queries."""
    since = timezone.now() - LOOK_BACK
    turns = TurnRollup.objects.filter(hour__gte=since, model__isnull=False).values_list("model")
    judged = JudgeCall.objects.filter(created_at__gte=since).values_list("judge__model")
    made_here = EvalRun.objects.filter(source_key__isnull=True)  # what others ran, others paid
    runs = made_here.filter(started_at__gte=since, model__isnull=False).values_list("model")
    calls: dict[str, int] = {}
    for rows in (turns.annotate(n=Sum("turns")), judged.annotate(n=Count("id")), runs.annotate(n=Count("id"))):
        for model, n in rows.order_by("-n")[:1000]:
            calls[model] = calls.get(model, 0) + n
    priced = {card.model for card in cards}
    missing = [model for model in calls if model not in priced and not _is_ours(model)]
    return [Unpriced(model=model, calls=calls[model]) for model in sorted(missing, key=lambda one: (-calls[one], one))][
        :MAX_MODELS
    ]


def _is_ours(model: str) -> bool:
    _, at, version = model.rpartition("@")
    return bool(at) and version.isdigit()
