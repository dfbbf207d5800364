"""Where money went: every call booked once, under the weights or model that answered, for the purpose it had.

A price is the one whose card was valid in that hour. Bounded by whole hours; a fixed number of queries, whatever the
traffic.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from feedback.rollups import whole_hours
from registry.models import PriceCard
from registry.price_cards import OWN_HARDWARE, all_cards, rates_by_card
from registry.pricing import Spend
from rl_online.spending.entries import PURPOSE_OF_SOURCE, Entry, merged
from rl_online.spending.idle import Idle, idle_time
from rl_online.spending.measured import (
    answers_of_models,
    canaries_of_models,
    judgements_of_models,
    lessons_of_models,
    own_policies,
)
from rl_online.spending.turns import num_imported, turns_of_models, turns_of_ours
from rl_online.spending.updates import training


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """Everything that was spent in a span of whole hours."""

    since: datetime
    until: datetime
    entries: tuple[Entry, ...]  # one for each name and purpose
    idle: Idle  # of our own device; in no entry, since nobody asked for it
    num_imported: int  # turns that came by import: not paid for here
    has_device_price: bool  # some hour of own hardware has a price

    def spend_of(self, name: str, purpose: str) -> Spend:
        return sum((one.spend for one in self.entries if (one.name, one.purpose) == (name, purpose)), Spend())

    @property
    def total(self) -> Spend:
        """Of all that was asked for; idle time stands beside it."""
        return sum((entry.spend for entry in self.entries), Spend())

    @property
    def seconds(self) -> Decimal:
        """Of our own devices, at work."""
        return sum((entry.seconds for entry in self.entries), Decimal(0))


def inference_by_hour(since: datetime, until: datetime) -> list[Entry]:
    """What answering real users cost in each whole hour; a name may have several entries. Five queries at most."""
    since, until = whole_hours(since, until)
    rates = rates_by_card(all_cards())
    sources = [source for source, purpose in PURPOSE_OF_SOURCE.items() if purpose == "inference"]
    return [
        *turns_of_models(rates, since, until, by_hour=True, sources=sources),
        *turns_of_ours(rates, since, until, by_hour=True, sources=sources),
    ]


def spent(since: datetime, until: datetime) -> Spend:
    """All that was asked for in these whole hours, without a word on whom or what for: `Ledger.total`."""
    return sum((entry.spend for entry in _entries(all_cards(), *whole_hours(since, until))), Spend())


def ledger(since: datetime, until: datetime) -> Ledger:
    """Inside a tenant."""
    since, until = whole_hours(since, until)
    cards = all_cards()
    return Ledger(
        since=since,
        until=until,
        entries=tuple(merged(_entries(cards, since, until))),
        idle=idle_time(cards, since, until),
        num_imported=num_imported(since, until),
        has_device_price=any(card.model == OWN_HARDWARE and card.valid_from < until for card in cards),
    )


def _entries(cards: Sequence[PriceCard], since: datetime, until: datetime) -> list[Entry]:
    rates, own = rates_by_card(cards), own_policies()
    return [
        *turns_of_models(rates, since, until),
        *turns_of_ours(rates, since, until),
        *answers_of_models(rates, since, until),
        *judgements_of_models(rates, own, since, until),
        *lessons_of_models(rates, own, since, until),
        *canaries_of_models(own, since, until),
        *training(cards, since, until),
    ]
