"""Rows of a query within a tenant and whole hours, and the price that was valid in each."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import connection

from console.reads.spending.entries import PURPOSE_OF_SOURCE
from registry.price_cards import OWN_HARDWARE, Rates
from registry.pricing import Prices, Usage
from registry.tenancy import current_project_id

# The card that is valid in an hour: each is valid until the next of its model.
CARDS = """
cards AS (
  SELECT id, model, valid_from, lead(valid_from) OVER (PARTITION BY model ORDER BY valid_from) AS valid_to
  FROM registry_pricecard WHERE project_id = %(project)s)
"""


def rows(query: str, since: datetime, until: datetime) -> list[dict[str, Any]]:
    values = {
        "project": current_project_id(),
        "since": since,
        "until": until,
        "sources": list(PURPOSE_OF_SOURCE),
        "hardware": OWN_HARDWARE,
    }
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def usage(row: Mapping[str, Any]) -> Usage:
    output = int(row["output"])
    return Usage(
        input=int(row["input"]),
        cache_read=int(row["cache_read"]),
        cache_write=int(row["cache_write"]),
        output=output,
        reasoning=min(output, int(row.get("reasoning") or 0)),
    )


def tokens(row: Mapping[str, Any]) -> int | None:
    """All that were told; None where no call told any."""
    return int(row["tokens"]) if row["telling"] else None


def prices(row: Mapping[str, Any], rates: Mapping[int, Rates]) -> Prices | None:
    card = rates.get(row["card"])
    return card.prices if card else None


def hour_price(row: Mapping[str, Any], rates: Mapping[int, Rates]) -> Decimal | None:
    card = rates.get(row["card"])
    return card.device_hour_usd if card else None
