"""Rows of a query within a tenant and whole hours, and the price that was valid in each."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import connection

from registry.price_cards import OWN_HARDWARE, Rates
from registry.pricing import Prices, Usage
from registry.tenancy import current_project_id
from rl_online.spending.entries import PURPOSE_OF_SOURCE

# The card that is valid in an hour, as `registry.price_cards.card_at` chooses it: each is valid until the next of its
# model, and none that was copied from a list is once the model has an own one.
CARDS = """
cards AS (
  SELECT id, model, variants, valid_from, lead(valid_from) OVER (PARTITION BY model ORDER BY valid_from) AS valid_to
  FROM registry_pricecard card
  WHERE project_id = %(project)s AND (source = '' OR NOT EXISTS (
    SELECT FROM registry_pricecard own WHERE own.project_id = card.project_id AND own.model = card.model
      AND own.source = '' AND own.valid_from <= card.valid_from)))
"""


def variant(*, prompt: str, at: str, processing: str) -> str:
    """Which of a card's variants covers a request, as `registry.pricing.PriceList` chooses it; NULL: its base prices.

    `prompt`, `at` and `processing` are SQL for the request's tokens, its moment and how it was sent.
    """
    minute = f"(extract(hour FROM {at} AT TIME ZONE 'UTC') * 60 + extract(minute FROM {at} AT TIME ZONE 'UTC'))"
    start, end = "(terms->>'from')::int", "(terms->>'to')::int"
    return f"""
    LEFT JOIN LATERAL (
      SELECT min(place) - 1 AS variant FROM jsonb_array_elements(cards.variants) WITH ORDINALITY AS one (terms, place)
      WHERE (NOT terms ? 'above' OR {prompt} > (terms->>'above')::bigint)
        AND (NOT terms ? 'processing' OR terms->>'processing' = {processing})
        AND (NOT terms ? 'from' OR CASE WHEN {start} < {end} THEN {minute} >= {start} AND {minute} < {end}
                                       ELSE {minute} >= {start} OR {minute} < {end} END)) covering ON true
    """  # noqa: S608 - literals, and SQL of the callers


def rows(query: str, since: datetime, until: datetime, **more: Any) -> list[dict[str, Any]]:
    values = {
        "project": current_project_id(),
        "since": since,
        "until": until,
        "sources": list(PURPOSE_OF_SOURCE),
        "hardware": OWN_HARDWARE,
    } | more
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
    """Of the card of the row, and of its variant where the row names one."""
    card = rates.get(row["card"])
    if card is None:
        return None
    place = row.get("variant")
    return card.prices.base if place is None else card.prices.variants[place].prices


def used(row: Mapping[str, Any]) -> frozenset[int]:
    """The card of the row."""
    return frozenset() if row["card"] is None else frozenset({row["card"]})


def hour_price(row: Mapping[str, Any], rates: Mapping[int, Rates]) -> Decimal | None:
    card = rates.get(row["card"])
    return card.device_hour_usd if card else None
