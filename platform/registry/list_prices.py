"""List prices of well-known models, from the data that the package genai-prices carries: dated, tiered, batched.

Read from the installed package, never from the network. Only what is paid by the token is taken: a model with a fee for
each request, or another price for thinking, is not listed here, because its tokens alone would not tell its cost. Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from decimal import Decimal
from importlib.metadata import version
from typing import Any

from registry.pricing import PriceList, Prices, Variant

PACKAGE = "genai-prices"
KEYS = {
    "input_mtok": "input_usd",
    "cache_read_mtok": "cache_read_usd",
    "cache_write_mtok": "cache_write_usd",
    "output_mtok": "output_usd",
}
NOT_BY_TOKENS_ALONE = ("requests_kcount", "output_reasoning_mtok", "output_citation_mtok")
CONTEXTS = {
    "batch": ("processing", "batch"),
    "flex": ("service_tier", "flex"),
    "priority": ("service_tier", "priority"),
}
REFERENCES = ("composer-2.5", "composer-2.5-fast", "claude-opus-4-7", "gpt-5.5")  # shown beside what one measures
BEFORE_ALL = datetime(2000, 1, 1, tzinfo=UTC)  # where the list has no date, its price is taken as far back as cards go


@dataclass(frozen=True, kw_only=True, slots=True)
class Dated:
    valid_from: datetime
    prices: PriceList


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """What the list says of one model."""

    name: str  # <provider>/<the list's own name of the model>
    url: str  # the provider's page of prices; empty: not given
    source: str  # the package and its version
    dated: tuple[Dated, ...]  # the oldest first

    def at(self, moment: datetime) -> PriceList:
        return max((one for one in self.dated if one.valid_from <= moment), key=lambda one: one.valid_from).prices


def source() -> str:
    return f"{PACKAGE} {version(PACKAGE)}"


def listed(model: str) -> Listed | None:
    """By the name that requests use, or `<provider>/<name>`; None: not in the list, or not paid by tokens alone."""
    from genai_prices.data_snapshot import get_snapshot  # 20 MB that only who looks up a price needs

    provider_id, slash, rest = model.partition("/")
    snapshot = get_snapshot()
    try:
        if slash and any(provider_id == one.id for one in snapshot.providers):
            provider, info = snapshot.find_provider_model(rest, None, provider_id, None)
        else:
            provider, info = snapshot.find_provider_model(model, None, None, None)
    except LookupError:
        return None
    dated = tuple(Dated(valid_from=day, prices=prices) for day in _days(info) if (prices := _list_at(info, day)))
    if not dated or dated[0].valid_from != BEFORE_ALL:
        return None
    return Listed(name=f"{provider.id}/{info.id}", url=(provider.pricing_urls or [""])[0], source=source(), dated=dated)


def _days(info: Any) -> list[datetime]:
    """When a price or a variant starts."""
    starts = (one.constraint for one in [*_conditional(info), *(info.price_variants or ())])
    days = {_midnight(start) for start in starts if hasattr(start, "start_date")}
    return sorted({BEFORE_ALL, *days})


def _midnight(constraint: Any) -> datetime:
    return datetime.combine(constraint.start_date, time(), tzinfo=UTC)


def _conditional(info: Any) -> list[Any]:
    return info.prices if isinstance(info.prices, list) else []


def _list_at(info: Any, day: datetime) -> PriceList | None:
    """The prices in force on that day; None where tokens alone do not tell the cost."""
    base: PriceList | None = None
    variants: list[Variant] = []
    for processing in (*CONTEXTS, None):
        own = _overrides(info, processing, day)
        if processing is not None and not own:
            continue
        for window, standard in _windows(info, day):
            named = {**_known(standard), **own}
            if any(key in named for key in NOT_BY_TOKENS_ALONE) or "input_mtok" not in named:
                return None
            for above, prices in _tiers(named):
                if processing is None and window is None and above is None:
                    base = PriceList(base=prices)
                else:
                    variants.append(Variant(prices=prices, above=above, processing=processing, window=window))
    assert base is not None
    return PriceList(base=base.base, variants=tuple(variants))


def _known(prices: Any) -> dict[str, Any]:
    return {key: price for key, price in vars(prices).items() if price is not None and not key.startswith("_")}


def _overrides(info: Any, processing: str | None, day: datetime) -> dict[str, Any]:
    """What requests sent so pay instead, the first that says anything of a price."""
    if processing is None:
        return {}
    name, value = CONTEXTS[processing]
    found: dict[str, Any] = {}
    for variant in info.price_variants or ():
        if variant.when == {name: value} and (variant.constraint is None or _midnight(variant.constraint) <= day):
            found = {**_known(variant.prices), **found}
    return found


def _windows(info: Any, day: datetime) -> Iterator[tuple[tuple[int, int] | None, Any]]:
    """(minutes of the UTC day, prices), what holds first in front; the last one has no window."""
    conditional = _conditional(info)
    if not conditional:
        yield None, info.prices
        return
    for one in reversed(conditional):
        if hasattr(one.constraint, "start_time"):
            yield (_minute(one.constraint.start_time), _minute(one.constraint.end_time)), one.prices
        elif one.constraint is None or _midnight(one.constraint) <= day:
            yield None, one.prices
            return
    yield None, conditional[0].prices


def _minute(moment: time) -> int:
    utc = datetime.combine(BEFORE_ALL, moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    return 60 * utc.hour + utc.minute


def _tiers(named: Mapping[str, Any]) -> Iterator[tuple[int | None, Prices]]:
    """(prompt tokens beyond which they hold, prices), the highest tier first, then the base."""
    starts = {tier.start for price in named.values() if hasattr(price, "tiers") for tier in price.tiers}
    for start in sorted(starts, reverse=True):
        yield start, _prices(named, start)
    yield None, _prices(named, None)


def _prices(named: Mapping[str, Any], start: int | None) -> Prices:
    told = {of: _price(named.get(key), start) for key, of in KEYS.items()}
    return Prices(**told)


def _price(price: Any, start: int | None) -> Decimal | None:
    if price is None or isinstance(price, Decimal):
        return price
    reached = [tier for tier in price.tiers if start is not None and tier.start <= start]
    found = max(reached, key=lambda tier: tier.start).price if reached else price.base
    assert isinstance(found, Decimal)
    return found
