"""What was spent since midnight."""

from dataclasses import dataclass
from datetime import datetime

from feedback.rollups import hour_of
from registry.pricing import Spend
from rl_online.spending.ledger import spent


@dataclass(frozen=True, kw_only=True, slots=True)
class Today:
    since: datetime  # the whole hour of midnight on the reader's clock
    spend: Spend

    @property
    def is_priced(self) -> bool:
        """Something has a price, or nothing was called: else the sum of 0 would be a lie."""
        return self.spend.calls == 0 or self.spend.unpriced < self.spend.calls


def spent_today(now: datetime) -> Today:
    """`now` on the reader's clock, whose day it is."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return Today(since=hour_of(midnight), spend=spent(midnight, now))
