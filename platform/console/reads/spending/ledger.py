"""Where money went: every call booked once, under the weights or model that answered, for the purpose it had.

A price is the one whose card was valid in that hour. Bounded by whole hours; a fixed number of queries, whatever the
traffic.
"""

from dataclasses import dataclass
from datetime import datetime

from console.reads.spending.entries import Entry, merged
from console.reads.spending.measured import answers_of_models, canaries_of_models, judgements_of_models, own_policies
from console.reads.spending.turns import num_imported, turns_of_models, turns_of_ours
from console.reads.spending.updates import training
from feedback.rollups import whole_hours
from registry.price_cards import OWN_HARDWARE, all_cards, rates_by_card
from registry.pricing import Spend


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """Everything that was spent in a span of whole hours."""

    since: datetime
    until: datetime
    entries: tuple[Entry, ...]  # one for each name and purpose
    num_imported: int  # turns that came by import: not paid for here
    has_device_price: bool  # some hour of own hardware has a price

    def spend_of(self, name: str, purpose: str) -> Spend:
        return sum((one.spend for one in self.entries if (one.name, one.purpose) == (name, purpose)), Spend())

    @property
    def total(self) -> Spend:
        return sum((entry.spend for entry in self.entries), Spend())


def ledger(since: datetime, until: datetime) -> Ledger:
    """Inside a tenant."""
    since, until = whole_hours(since, until)
    cards = all_cards()
    rates, own = rates_by_card(cards), own_policies()
    entries = [
        *turns_of_models(rates, since, until),
        *turns_of_ours(rates, since, until),
        *answers_of_models(rates, since, until),
        *judgements_of_models(rates, own, since, until),
        *canaries_of_models(own, since, until),
        *training(cards, since, until),
    ]
    return Ledger(
        since=since,
        until=until,
        entries=tuple(merged(entries)),
        num_imported=num_imported(since, until),
        has_device_price=any(card.model == OWN_HARDWARE and card.valid_from < until for card in cards),
    )
