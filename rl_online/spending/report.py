"""A ledger as plain rows, for commands and files. Amounts are exact decimals as text, None where nothing is priced."""

from typing import Any

from registry.pricing import Spend
from rl_online.spending.entries import PURPOSES
from rl_online.spending.ledger import Ledger


def spend_of(spend: Spend) -> dict[str, Any]:
    is_known = spend.calls > spend.unpriced or not spend.calls
    return {
        "usd": f"{spend.cost_usd.normalize():f}" if is_known else None,
        "calls": spend.calls,
        "unpriced_calls": spend.unpriced,
        "unpriced_tokens": spend.unpriced_tokens,
        "provided_usd": f"{spend.provided_usd.normalize():f}",
    }


def rows_of(ledger: Ledger) -> list[dict[str, Any]]:
    """One for each name and purpose, the dearest first."""
    entries = sorted(ledger.entries, key=lambda one: (-one.spend.cost_usd, one.name, PURPOSES.index(one.purpose)))
    return [
        {
            "name": one.name,
            "purpose": one.purpose,
            **spend_of(one.spend),
            "device_seconds": f"{one.seconds.normalize():f}",
            "tokens": one.tokens,
        }
        for one in entries
    ]
