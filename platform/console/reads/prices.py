"""Price cards with the time each is valid, and models that have none. Inside a tenant."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from registry.list_prices import BEFORE_ALL
from registry.models import PriceCard
from registry.price_cards import prices_of_card
from registry.pricing import Variant
from rl_online.spending.models_used import models_used

MAX_MODELS = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class DatedCard:
    card: PriceCard
    valid_to: datetime | None  # None: still valid, or to become so
    state: str  # past | now | to come | replaced
    variants: tuple["Told", ...] = ()

    @property
    def is_from_the_start(self) -> bool:
        """Of a list that gives no date: as far back as cards go."""
        return self.card.valid_from <= BEFORE_ALL


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """One variant of a card, and in words when it holds."""

    when: str
    variant: Variant


@dataclass(frozen=True, kw_only=True, slots=True)
class Unpriced:
    """An external model that was used lately and never had a price."""

    model: str
    calls: int


def dated(cards: Sequence[PriceCard]) -> list[DatedCard]:
    """In the order given, which is the newest first within a model. A listed card ends where an own one starts."""
    now = timezone.now()
    found: list[DatedCard] = []
    following: dict[str, datetime] = {}
    own_from: dict[str, datetime] = {}
    for card in cards:
        if card.is_own:
            own_from[card.model] = min(card.valid_from, own_from.get(card.model, card.valid_from))
    for card in cards:
        is_replaced = not card.is_own and card.model in own_from and card.valid_from >= own_from[card.model]
        end = None if is_replaced else following.get(card.model)
        if not is_replaced:
            following[card.model] = card.valid_from
        state = "to come" if card.valid_from > now else "now" if end is None or end > now else "past"
        variants = tuple(Told(when=when(one), variant=one) for one in prices_of_card(card).variants)
        found.append(DatedCard(card=card, valid_to=end, state="replaced" if is_replaced else state, variants=variants))
    return found


def said(card: PriceCard) -> str:
    """Which prices they are, for what explains a number that they made."""
    if card.is_own:
        return f"price card of {card.model} from {card.valid_from:%Y-%m-%d %H:%M} UTC"
    since = f", from {card.valid_from:%Y-%m-%d}" if card.valid_from > BEFORE_ALL else ""
    return f"list price of {card.listed_as} in {card.source}{since}"


def when(variant: Variant) -> str:
    """Example: batch, beyond 272,000 prompt tokens, 00:30 to 16:30 UTC."""
    parts = [variant.processing or "", "" if variant.above is None else f"beyond {variant.above:,} prompt tokens"]
    if variant.window is not None:
        start, end = (f"{minute // 60:02d}:{minute % 60:02d}" for minute in variant.window)
        parts.append(f"{start} to {end} UTC")
    return ", ".join(part for part in parts if part)


def unpriced_models(cards: Sequence[PriceCard]) -> list[Unpriced]:
    """Of the last 90 days; those with most calls first. Four queries."""
    calls = {model: n for model, n in models_used().items() if n}
    priced = {card.model for card in cards}
    missing = sorted((model for model in calls if model not in priced), key=lambda one: (-calls[one], one))
    return [Unpriced(model=model, calls=calls[model]) for model in missing[:MAX_MODELS]]
