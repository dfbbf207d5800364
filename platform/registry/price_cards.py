"""Dated price cards: what a model's tokens, or an hour of our own hardware, cost from a day on.

A card is never changed: a new price is a new card, and what was used before its date keeps the older one. It starts on
a whole hour, because costs are counted by the hour. No card means unpriced, which is not free. Inside a tenant.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation

from registry.errors import Conflict, InvalidInput
from registry.models import PriceCard
from registry.pricing import Prices
from registry.services import audit

OWN_HARDWARE = "own hardware"  # the card that prices the hours of our own devices
TOKEN_PRICES = ("input_usd", "cache_read_usd", "cache_write_usd", "output_usd")
MAX_CARDS = 2_000  # of one project, newest first
DECIMALS = 10
LARGEST = Decimal(10) ** 9


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """What a card says."""

    prices: Prices
    device_hour_usd: Decimal | None


def rates_of(card: PriceCard) -> Rates:
    return Rates(prices=prices_of_card(card), device_hour_usd=card.device_hour_usd)


def prices_of_card(card: PriceCard) -> Prices:
    return Prices(
        input_usd=card.input_usd,
        output_usd=card.output_usd,
        cache_read_usd=card.cache_read_usd,
        cache_write_usd=card.cache_write_usd,
    )


def all_cards() -> list[PriceCard]:
    """By model, the newest first."""
    newest = PriceCard.objects.order_by("-valid_from", "-id")[:MAX_CARDS]
    return sorted(newest, key=lambda card: (card.model != OWN_HARDWARE, card.model, -card.valid_from.timestamp()))


def card_at(cards: Iterable[PriceCard], model: str, at: datetime) -> PriceCard | None:
    """The card of this model that is valid at that moment; None: unpriced."""
    valid = [card for card in cards if card.model == model and card.valid_from <= at]
    return max(valid, key=lambda card: card.valid_from, default=None)


def add_card(model: str, *, valid_from: datetime, prices: Mapping[str, Decimal | None], actor: str) -> PriceCard:
    """`prices` are fields of PriceCard. Raises InvalidInput, or Conflict where the model has a card from that hour."""
    model = model.strip()
    if not model or len(model) > 200 or "\x00" in model:
        raise InvalidInput("write the model's name as turns name it, at most 200 characters", field="model")
    if valid_from != valid_from.astimezone(UTC).replace(minute=0, second=0, microsecond=0):
        raise InvalidInput("costs are counted by the hour; let the card start on a whole one", field="valid_from")
    if valid_from.year < 2000 or valid_from.year > 2200:
        raise InvalidInput(f"found the year {valid_from.year}", field="valid_from")
    known = {name: _checked(name, price) for name, price in prices.items()}
    if all(price is None for price in known.values()):
        raise InvalidInput("a card without any price says nothing; unpriced needs no card", field="prices")
    if PriceCard.objects.filter(model=model, valid_from=valid_from).exists():
        raise Conflict(f"{model} has a card from {valid_from:%F %H:%M} on; cards are never changed", field="valid_from")
    card = PriceCard.objects.create(model=model, valid_from=valid_from, **known)
    after = {"model": model, "valid_from": valid_from.isoformat()} | {
        name: str(price) for name, price in known.items() if price is not None
    }
    audit("add", "price card", card.pk, actor=actor, after=after)
    return card


def parse_price(text: str, *, field: str) -> Decimal | None:
    """What a form sent; None for an empty field, which is unknown. Raises InvalidInput."""
    text = text.strip()
    if not text:
        return None
    try:
        price = Decimal(text)
    except InvalidOperation as error:
        raise InvalidInput(f"found {text[:40]!r}; write USD as a number, e.g. 2.50", field=field) from error
    return _checked(field, price)


def _checked(field: str, price: Decimal | None) -> Decimal | None:
    if price is None:
        return None
    if not price.is_finite() or price < 0:
        raise InvalidInput(f"found {price}; a price is a number from 0 on", field=field)
    if price >= LARGEST or price != round(price, DECIMALS):
        raise InvalidInput(f"found {price}; at most {DECIMALS} decimals, below {LARGEST:,}", field=field)
    return price


def rates_by_card(cards: Iterable[PriceCard]) -> dict[int, Rates]:
    """Card id -> what it says."""
    return {card.pk: rates_of(card) for card in cards}
