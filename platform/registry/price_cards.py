"""Dated price cards: what a model's tokens, or an hour of our own hardware, cost from a day on.

A card is never changed: a new price is a new card, and what was used before its date keeps the older one. It starts on
a whole hour, because costs are counted by the hour. Cards are the project's own or copied from a price list; from the
hour of its first own card on a model costs what its own cards say. No card means unpriced, which is not free. Inside a
tenant.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation

from django.db.models import QuerySet

from registry.errors import Conflict, InvalidInput
from registry.list_prices import Dated, Listed
from registry.models import PriceCard
from registry.pricing import DAY_MINUTES, PROCESSINGS, TOKEN_PRICES, PriceList, Prices, Variant
from registry.services import LOOP, audit

OWN_HARDWARE = "own hardware"  # the card that prices the hours of our own devices
MAX_CARDS = 10_000  # of one project, newest first
MAX_VARIANTS = 20
DECIMALS = 10
LARGEST = Decimal(10) ** 9


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """What a card says."""

    prices: PriceList
    device_hour_usd: Decimal | None


def rates_of(card: PriceCard) -> Rates:
    return Rates(prices=prices_of_card(card), device_hour_usd=card.device_hour_usd)


def prices_of_card(card: PriceCard) -> PriceList:
    return PriceList(
        base=Prices(
            input_usd=card.input_usd,
            output_usd=card.output_usd,
            cache_read_usd=card.cache_read_usd,
            cache_write_usd=card.cache_write_usd,
        ),
        variants=tuple(map(Variant.from_json, card.variants)),
    )


def all_cards() -> list[PriceCard]:
    """By model, the newest first."""
    newest = PriceCard.objects.order_by("-valid_from", "-id")[:MAX_CARDS]
    return sorted(newest, key=lambda card: (card.model != OWN_HARDWARE, card.model, -card.valid_from.timestamp()))


def card_at(cards: Iterable[PriceCard], model: str, at: datetime) -> PriceCard | None:
    """The card of this model that is valid at that moment, an own one before a listed one; None: unpriced."""
    valid = [card for card in cards if card.model == model and card.valid_from <= at]
    return max(valid, key=lambda card: (card.is_own, card.valid_from), default=None)


def cards_at(at: datetime, *models: str) -> QuerySet[PriceCard]:
    """What `card_at` has to look at for these models."""
    return PriceCard.objects.filter(model__in=models, valid_from__lte=at)


def add_card(
    model: str,
    *,
    valid_from: datetime,
    prices: Mapping[str, Decimal | None],
    actor: str,
    variants: Sequence[Variant] = (),
) -> PriceCard:
    """`prices` are fields of PriceCard; of the `variants` the first that covers a request holds.

    Raises InvalidInput, or Conflict where the model has an own card from that hour.
    """
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
    told = [_told(variant) for variant in _in_order(variants)]
    if PriceCard.objects.filter(model=model, valid_from=valid_from, source="").exists():
        raise Conflict(f"{model} has a card from {valid_from:%F %H:%M} on; cards are never changed", field="valid_from")
    card = PriceCard.objects.create(model=model, valid_from=valid_from, variants=told, **known)
    after = {"model": model, "valid_from": valid_from.isoformat()} | {
        name: str(price) for name, price in known.items() if price is not None
    }
    audit("add", "price card", card.pk, actor=actor, after=after | ({"variants": told} if told else {}))
    return card


def _in_order(variants: Sequence[Variant]) -> list[Variant]:
    """The narrower before the wider, so that the first that covers a request is the one that is meant."""
    return sorted(variants, key=lambda one: (one.processing is None, one.window is None, -(one.above or 0)))


def _told(variant: Variant) -> dict[str, object]:
    """Raises InvalidInput."""
    if variant.above is None and variant.processing is None and variant.window is None:
        raise InvalidInput("say when these prices hold: beyond how many tokens, sent how, in which hours", field="when")
    if variant.above is not None and not 0 < variant.above < 10**9:
        raise InvalidInput(f"found {variant.above}; a tier starts beyond a number of tokens", field="above")
    if variant.processing is not None and variant.processing not in PROCESSINGS:
        raise InvalidInput(f"found {variant.processing[:40]!r}; known are {', '.join(PROCESSINGS)}", field="processing")
    if variant.window is not None and not (
        all(0 <= minute < DAY_MINUTES for minute in variant.window) and variant.window[0] != variant.window[1]
    ):
        raise InvalidInput("a window has two different times of the day", field="window")
    if variant.prices.input_usd is None or variant.prices.output_usd is None:
        raise InvalidInput("a variant needs a price of input and of output", field="prices")
    for name in TOKEN_PRICES:
        _checked(name, getattr(variant.prices, name))
    return variant.to_json()


def adopt(model: str, found: Listed, *, now: datetime) -> list[PriceCard]:
    """Copy what a price list says of a model into cards; returns the new ones.

    The first time all that it says, with its dates. Later only what differs from the hour of `now` on: a list that
    changes its mind changes no number of the past.
    """
    kept = list(PriceCard.objects.filter(model=model).exclude(source=""))
    wanted = list(found.dated)
    if kept:
        wanted = [one for one in wanted if one.valid_from > now]
        current = card_at(kept, model, now)
        if current is None or prices_of_card(current) != found.at(now):
            hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
            wanted.insert(0, Dated(valid_from=hour, prices=found.at(now)))
    taken = {card.valid_from for card in kept}
    added = [
        PriceCard(
            model=model,
            valid_from=one.valid_from,
            source=found.source,
            listed_as=found.name[:200],
            url=found.url[:500],
            variants=[variant.to_json() for variant in one.prices.variants],
            **{name: getattr(one.prices.base, name) for name in TOKEN_PRICES},
        )
        for one in wanted
        if one.valid_from not in taken
    ]
    PriceCard.objects.bulk_create(added, ignore_conflicts=True)
    if added:
        first = min(card.valid_from for card in added)
        after = {"listed_as": found.name, "source": found.source, "cards": len(added), "first": first.isoformat()}
        audit("copy", "price list", model, actor=LOOP, after=after)
    return added


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
