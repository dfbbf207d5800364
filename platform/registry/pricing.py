"""What tokens cost, exactly.

    cost = input x price + cache reads x price + cache writes x price + output x price

`input` excludes what was read from or written to a cache, and `reasoning` is part of `output`, so nothing is paid for
twice. Prices are in USD per million tokens, as Decimals; the result is exact. A price that is needed and missing makes
the cost unknown (None), never 0; an explicit 0 is free. A request beyond a tier's edge pays the tier's price for all of
its tokens: tiers are cliffs. Pure; which card was valid when is the caller's question.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

MILLION = Decimal(1_000_000)
KINDS = ("input", "cache_read", "cache_write", "output", "reasoning")
TOKEN_PRICES = ("input_usd", "cache_read_usd", "cache_write_usd", "output_usd")
PROCESSINGS = ("batch", "flex", "priority")
DAY_MINUTES = 24 * 60


class InvalidUsage(ValueError):
    """Token counts that cannot be: negative, or parts larger than the whole."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Tokens of one call, disjoint but for `reasoning`.

    Example: OpenAI says prompt 100 of which cached 80, completion 10 -> input 20, cache_read 80, output 10
    """

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0  # the part of `output` that was thinking

    def __post_init__(self) -> None:
        for kind in KINDS:
            if getattr(self, kind) < 0:
                raise InvalidUsage(f"{kind} is {getattr(self, kind)}; tokens are counted from 0")
        if self.reasoning > self.output:
            raise InvalidUsage(f"{self.reasoning} reasoning tokens in {self.output} output tokens")

    @property
    def prompt(self) -> int:
        """All that was sent, those read from and written to a cache among them: what a tier is chosen by."""
        return self.input + self.cache_read + self.cache_write

    @property
    def total(self) -> int:
        return self.prompt + self.output

    def to_json(self) -> dict[str, int]:
        return {kind: getattr(self, kind) for kind in KINDS}


@dataclass(frozen=True, kw_only=True, slots=True)
class Prices:
    """USD per million tokens. None is not known; a missing cache price means the input price."""

    input_usd: Decimal | None
    output_usd: Decimal | None
    cache_read_usd: Decimal | None = None
    cache_write_usd: Decimal | None = None

    def __post_init__(self) -> None:
        for price in (self.input_usd, self.output_usd, self.cache_read_usd, self.cache_write_usd):
            if price is not None and not (price.is_finite() and price >= 0):
                raise ValueError(f"a price of {price}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """Prices of some requests to a model: long ones, batched ones, those of some hours. Every condition given holds.

    Example: above 200,000 -> a prompt of 200,000 tokens costs the base prices, one of 200,001 these, every token of it
    """

    prices: Prices
    above: int | None = None  # prompt tokens; where N itself is in the tier, N - 1
    processing: str | None = None  # one of PROCESSINGS
    window: tuple[int, int] | None = None  # minutes of the UTC day, [start, end); an end before it is past midnight

    def covers(self, prompt: int, *, at: datetime, processing: str | None) -> bool:
        if self.above is not None and prompt <= self.above:
            return False
        if self.processing is not None and processing != self.processing:
            return False
        return self.window is None or _is_within(self.window, at)

    def to_json(self) -> dict[str, Any]:
        """Prices as text, so that none becomes a float."""
        told: dict[str, Any] = {name: str(price) for name, price in _named(self.prices).items() if price is not None}
        if self.above is not None:
            told["above"] = self.above
        if self.processing is not None:
            told["processing"] = self.processing
        if self.window is not None:
            told["from"], told["to"] = self.window
        return told

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> "Variant":
        return cls(
            prices=Prices(**{name: Decimal(told[name]) if name in told else None for name in TOKEN_PRICES}),
            above=told.get("above"),
            processing=told.get("processing"),
            window=(told["from"], told["to"]) if "from" in told else None,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceList:
    """What the requests to one model cost: as the first variant that covers a request says, else as the base does."""

    base: Prices
    variants: Sequence[Variant] = ()

    def prices_for(self, usage: Usage, *, at: datetime, processing: str | None = None) -> Prices:
        """`processing` is what the request was sent as; None: at once, at the standard rate."""
        covering = (one.prices for one in self.variants if one.covers(usage.prompt, at=at, processing=processing))
        return next(covering, self.base)


def _is_within(window: tuple[int, int], at: datetime) -> bool:
    start, end = window
    moment = at.astimezone(UTC)
    minute = 60 * moment.hour + moment.minute
    return start <= minute < end if start < end else minute >= start or minute < end


def _named(prices: Prices) -> dict[str, Decimal | None]:
    return {name: getattr(prices, name) for name in TOKEN_PRICES}


def cost_of_request(
    usage: Usage | None, prices: PriceList | None, *, at: datetime, processing: str | None = None
) -> Decimal | None:
    """The exact cost in USD of one request made at that moment; None as with `cost_of`."""
    if usage is None or prices is None:
        return None
    return cost_of(usage, prices.prices_for(usage, at=at, processing=processing))


def cost_of(usage: Usage | None, prices: Prices | None) -> Decimal | None:
    """The exact cost in USD; None when the usage, the card or a price that is needed is not known."""
    if usage is None or prices is None:
        return None
    parts = (
        (usage.input, prices.input_usd),
        (usage.cache_read, _or(prices.cache_read_usd, prices.input_usd)),
        (usage.cache_write, _or(prices.cache_write_usd, prices.input_usd)),
        (usage.output, prices.output_usd),
    )
    total = Decimal(0)
    for tokens, price in parts:
        if tokens and price is None:
            return None
        total += tokens * (price or Decimal(0))
    return total / MILLION


def cost_of_device(seconds: float, device_hour_usd: Decimal | None) -> Decimal | None:
    """What our own weights cost: the time they held a device. None when the hour has no price."""
    return None if device_hour_usd is None else Decimal(str(seconds)) * device_hour_usd / 3600


@dataclass(frozen=True, kw_only=True, slots=True)
class Spend:
    """What some calls cost together. Unpriced ones are counted beside the sum, never as 0.

    Example: two calls for $0.10 and $0.20 and one of 50 tokens without a price
        calls 3, unpriced 1, cost_usd 0.30, unpriced_tokens 50
    """

    calls: int = 0
    unpriced: int = 0  # calls without a price, or whose tokens or time nobody told
    cost_usd: Decimal = Decimal(0)  # the exact sum over the others
    unpriced_tokens: int = 0  # known tokens of unpriced calls: left out of the sum
    provided_usd: Decimal = Decimal(0)  # the part of the sum that the provider billed; the rest was calculated here

    def __add__(self, other: "Spend") -> "Spend":
        return Spend(
            calls=self.calls + other.calls,
            unpriced=self.unpriced + other.unpriced,
            cost_usd=self.cost_usd + other.cost_usd,
            unpriced_tokens=self.unpriced_tokens + other.unpriced_tokens,
            provided_usd=self.provided_usd + other.provided_usd,
        )

    @property
    def is_known(self) -> bool:
        """Every call is priced; also true of no calls, which cost nothing."""
        return self.unpriced == 0

    @property
    def known_cost_usd(self) -> Decimal | None:
        """None where a call is unpriced: a sum that lacks something is no cost."""
        return self.cost_usd if self.is_known else None

    def per(self, number: int) -> Decimal | None:
        """Cost for each of `number` things; None where there are none, nothing was booked, or the cost is not known."""
        return self.cost_usd / number if self.is_known and self.calls and number else None


def spend_on_tokens(usage: Usage, prices: Prices | None, *, calls: int, without_usage: int = 0) -> Spend:
    """Calls under one price card whose tokens add up to `usage`; linear, so the sum of tokens costs the sum of costs.

    `without_usage` of them told no tokens and are unpriced. Without a price that is needed, all are.
    """
    cost = cost_of(usage, prices)
    if cost is None:
        return Spend(calls=calls, unpriced=calls, unpriced_tokens=usage.total)
    return Spend(calls=calls, unpriced=without_usage, cost_usd=cost)


def spend_on_device(
    seconds: Decimal, device_hour_usd: Decimal | None, *, calls: int, without_time: int = 0, tokens: int = 0
) -> Spend:
    """Calls that held a device of ours for so long together; without a price of the hour all are unpriced, and so are
    their tokens.
    """
    if device_hour_usd is None:
        return Spend(calls=calls, unpriced=calls, unpriced_tokens=tokens)
    return Spend(calls=calls, unpriced=without_time, cost_usd=seconds * device_hour_usd / 3600)


def total_cost(costs: Mapping[Any, Decimal | None]) -> tuple[Decimal, int]:
    """The sum of what is priced, and how many entries are not: shown beside it, never counted as 0."""
    priced = [cost for cost in costs.values() if cost is not None]
    return sum(priced, Decimal(0)), len(costs) - len(priced)


def usage_from_openai(usage: Mapping[str, Any] | None) -> Usage | None:
    """OpenAI's shape, in which prompt tokens include the cached ones; None when nothing was told.

    Raises InvalidUsage where more was cached than sent, rather than clamp it.
    """
    if not usage:
        return None
    prompt, output = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    of_prompt, of_output = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
    cached, written = _count(of_prompt, "cached_tokens"), _count(of_prompt, "cache_creation_tokens")
    if cached + written > prompt:
        raise InvalidUsage(f"{cached} cached and {written} written tokens in a prompt of {prompt}")
    return Usage(
        input=prompt - cached - written,
        cache_read=cached,
        cache_write=written,
        output=output,
        reasoning=_count(of_output, "reasoning_tokens"),
    )


def _or(price: Decimal | None, fallback: Decimal | None) -> Decimal | None:
    return fallback if price is None else price


def _count(counts: Mapping[str, Any], name: str) -> int:
    value = counts.get(name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidUsage(f"{name} is {value!r}; must be a whole number")
    return value
