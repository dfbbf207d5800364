"""Turns, from their hourly rollups: of external models by tokens, of our own weights by device seconds.

Under a card with tiers or hours of the day no sum over an hour tells the cost: such turns are read one by one.

A device second of an hour is shared out by latency: a turn's latency x (time in which at least one answer was being
made / sum of latencies), over all turns of our own weights in that hour. One device is assumed to answer.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from registry.price_cards import Rates
from registry.pricing import Spend, spend_on_device, spend_on_tokens
from rl_online.spending.entries import PURPOSE_OF_SOURCE, Entry
from rl_online.spending.rows import CARDS, hour_price, prices, rows, tokens, usage, used, variant


def turns_of_models(
    rates: Mapping[int, Rates],
    since: datetime,
    until: datetime,
    *,
    by_hour: bool = False,
    sources: Collection[str] = tuple(PURPOSE_OF_SOURCE),
) -> list[Entry]:
    found = rows(
        f"""
        WITH {CARDS}
        SELECT r.model, r.source, cards.id AS card, sum(r.turns) AS calls, sum(r.turns - r.with_usage) AS without_usage,
          sum(r.input_tokens) AS input, sum(r.cache_read_tokens) AS cache_read,
          sum(r.cache_write_tokens) AS cache_write, sum(r.output_tokens) AS output,
          sum(r.reasoning_tokens) AS reasoning, sum(r.with_usage) AS telling,
          sum(r.input_tokens + r.cache_read_tokens + r.cache_write_tokens + r.output_tokens) AS tokens,
          {_slot("r.hour", by_hour)} AS slot
        FROM feedback_turnrollup r LEFT JOIN cards ON cards.model = r.model AND r.hour >= cards.valid_from
          AND (cards.valid_to IS NULL OR r.hour < cards.valid_to)
        WHERE r.project_id = %(project)s AND r.hour >= %(since)s AND r.hour < %(until)s
          AND r.model IS NOT NULL AND r.source = ANY(%(sources)s)
        GROUP BY r.model, r.source, cards.id, slot
        """,  # noqa: S608 - one literal above
        since,
        until,
        sources=list(sources),
    )
    found, varied = _apart(found, _varied_cards(rates))
    if varied:
        found += _one_by_one(varied, since, until, by_hour=by_hour, sources=sources)
    return [
        Entry(
            name=row["model"],
            policy=None,
            version=None,
            purpose=PURPOSE_OF_SOURCE[row["source"]],
            spend=_on_tokens(row, rates),
            tokens=tokens(row),
            hour=row["slot"],
            cards=used(row),
        )
        for row in found
    ]


def _varied_cards(rates: Mapping[int, Rates]) -> set[int]:
    """Those under which the turns of an hour may differ in price; they are sent at once, never in a batch."""
    return {card for card, rate in rates.items() if any(one.processing is None for one in rate.prices.variants)}


def _apart(found: Sequence[dict[str, Any]], cards: set[int]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows under other cards and those under these."""
    groups: tuple[list[dict[str, Any]], list[dict[str, Any]]] = [], []
    for row in found:
        groups[row["card"] in cards].append(row)
    return groups


def _slot(hour: str, by_hour: bool) -> str:
    return hour if by_hour else "NULL::timestamptz"


def _one_by_one(
    varied: Sequence[Mapping[str, Any]], since: datetime, until: datetime, *, by_hour: bool, sources: Collection[str]
) -> list[dict[str, Any]]:
    """The turns of these rows, by the variant that covers each. Turns are sent at once."""
    at_once = variant(prompt="t.prompt", at="t.at", processing="NULL")
    return rows(
        f"""
        WITH {CARDS},
        t AS (
          SELECT model, source, at, date_trunc('hour', at, 'UTC') AS hour, output_tokens, reasoning_tokens,
            input_tokens + coalesce(cache_read_tokens, 0) + coalesce(cache_write_tokens, 0) AS prompt, input_tokens,
            coalesce(cache_read_tokens, 0) AS cache_read, coalesce(cache_write_tokens, 0) AS cache_write,
            input_tokens IS NOT NULL AND output_tokens IS NOT NULL AS is_told
          FROM feedback_turn
          WHERE project_id = %(project)s AND at >= %(since)s AND at < %(until)s AND model = ANY(%(models)s)
            AND source = ANY(%(sources)s))
        SELECT t.model, t.source, cards.id AS card, covering.variant, count(*) AS calls,
          count(*) FILTER (WHERE NOT is_told) AS without_usage, count(*) FILTER (WHERE is_told) AS telling,
          coalesce(sum(input_tokens) FILTER (WHERE is_told), 0) AS input,
          coalesce(sum(cache_read) FILTER (WHERE is_told), 0) AS cache_read,
          coalesce(sum(cache_write) FILTER (WHERE is_told), 0) AS cache_write,
          coalesce(sum(output_tokens) FILTER (WHERE is_told), 0) AS output,
          coalesce(sum(reasoning_tokens) FILTER (WHERE is_told), 0) AS reasoning,
          coalesce(sum(prompt + output_tokens) FILTER (WHERE is_told), 0) AS tokens, {_slot("t.hour", by_hour)} AS slot
        FROM t JOIN cards ON cards.model = t.model AND t.hour >= cards.valid_from
          AND (cards.valid_to IS NULL OR t.hour < cards.valid_to) AND cards.id = ANY(%(cards)s)
        {at_once}
        GROUP BY t.model, t.source, cards.id, covering.variant, slot
        """,  # noqa: S608 - literals above
        since,
        until,
        sources=list(sources),
        models=sorted({row["model"] for row in varied}),
        cards=sorted({row["card"] for row in varied}),
    )


def turns_of_ours(
    rates: Mapping[int, Rates],
    since: datetime,
    until: datetime,
    *,
    by_hour: bool = False,
    sources: Collection[str] = tuple(PURPOSE_OF_SOURCE),
) -> list[Entry]:
    """Time is shared out over the turns of every source, whichever of them are asked for."""
    found = rows(
        f"""
        WITH {CARDS},
        hours AS (
          SELECT hour, sum(latency_us) AS latency_us FROM feedback_turnrollup
          WHERE project_id = %(project)s AND hour >= %(since)s AND hour < %(until)s AND version IS NOT NULL
            AND source = ANY(%(sources)s)
          GROUP BY hour)
        SELECT r.policy, r.version, r.source, cards.id AS card, sum(r.turns) AS calls,
          {_slot("r.hour", by_hour)} AS slot,
          sum(r.turns - CASE WHEN busy.busy_us IS NULL THEN 0 ELSE r.with_latency END) AS without_time,
          coalesce(sum(r.latency_us::numeric * busy.busy_us / nullif(hours.latency_us, 0)), 0) / 1000000 AS seconds,
          sum(r.latency_us)::numeric / 1000000 AS latency_seconds,
          sum(r.with_usage) AS telling,
          sum(r.input_tokens + r.cache_read_tokens + r.cache_write_tokens + r.output_tokens) AS tokens
        FROM feedback_turnrollup r JOIN hours USING (hour)
        LEFT JOIN feedback_busyrollup busy ON busy.project_id = r.project_id AND busy.hour = r.hour
        LEFT JOIN cards ON cards.model = %(hardware)s AND r.hour >= cards.valid_from
          AND (cards.valid_to IS NULL OR r.hour < cards.valid_to)
        WHERE r.project_id = %(project)s AND r.hour >= %(since)s AND r.hour < %(until)s
          AND r.version IS NOT NULL AND r.source = ANY(%(asked)s)
        GROUP BY r.policy, r.version, r.source, cards.id, slot
        """,  # noqa: S608 - one literal above
        since,
        until,
        asked=list(sources),
    )
    return [
        Entry(
            name=f"{row['policy']}@{row['version']}",
            policy=row["policy"],
            version=row["version"],
            purpose=PURPOSE_OF_SOURCE[row["source"]],
            spend=spend_on_device(
                row["seconds"],
                hour_price(row, rates),
                calls=row["calls"],
                without_time=row["without_time"],
                tokens=tokens(row) or 0,
            ),
            seconds=row["seconds"],
            tokens=tokens(row),
            latency_seconds=row["latency_seconds"],
            hour=row["slot"],
            cards=used(row),
        )
        for row in found
    ]


def num_imported(since: datetime, until: datetime) -> int:
    found = rows(
        """
        SELECT coalesce(sum(turns), 0) AS turns FROM feedback_turnrollup
        WHERE project_id = %(project)s AND hour >= %(since)s AND hour < %(until)s AND source = 'import'
        """,
        since,
        until,
    )
    return int(found[0]["turns"])


def _on_tokens(row: Mapping[str, Any], rates: Mapping[int, Rates]) -> Spend:
    return spend_on_tokens(
        usage(row), prices(row, rates), calls=int(row["calls"]), without_usage=int(row["without_usage"])
    )
