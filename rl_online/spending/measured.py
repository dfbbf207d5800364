"""Answers to benchmarks and judgements by external models.

Those that our own weights gave came through the gateway and are turns already: they are not read here again.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from evals.models import CanaryRun, RunState
from registry.models import Policy
from registry.price_cards import Rates
from registry.pricing import Spend, spend_on_tokens
from rl_online.spending.entries import Entry
from rl_online.spending.rows import CARDS, prices, rows, tokens, usage, used, variant

MAX_CANARY_RUNS = 5_000

# Tokens of a JSON usage, the sums over rows that carry no cost of their own but tell their tokens, and over all rows.
# What the provider billed stands before what was calculated when the call was made, and that before a card's price now.
_BILLED = "coalesce(told.provided, of.cost_usd)"
_BY_CARD = f"{_BILLED} IS NULL AND told.input IS NOT NULL AND told.output IS NOT NULL"
_COUNTED = f"""
  count(*) AS calls, coalesce(sum({_BILLED}), 0) AS cost, count({_BILLED}) AS priced,
  coalesce(sum(told.provided), 0) AS provided,
  count(*) FILTER (WHERE {_BY_CARD}) AS counted,
  coalesce(sum(told.input) FILTER (WHERE {_BY_CARD}), 0) AS input,
  coalesce(sum(told.cache_read) FILTER (WHERE {_BY_CARD}), 0) AS cache_read,
  coalesce(sum(told.cache_write) FILTER (WHERE {_BY_CARD}), 0) AS cache_write,
  coalesce(sum(told.output) FILTER (WHERE {_BY_CARD}), 0) AS output,
  count(coalesce(told.input, told.output)) AS telling,
  coalesce(sum(coalesce(told.input, 0) + coalesce(told.cache_read, 0) + coalesce(told.cache_write, 0)
    + coalesce(told.output, 0)), 0) AS tokens
"""
_TOLD = """
CROSS JOIN LATERAL (
  SELECT CASE WHEN jsonb_typeof(of.usage->'input') = 'number' THEN (of.usage->>'input')::numeric END AS input,
    CASE WHEN jsonb_typeof(of.usage->'cache_read') = 'number' THEN (of.usage->>'cache_read')::numeric END AS cache_read,
    CASE WHEN jsonb_typeof(of.usage->'cache_write') = 'number' THEN (of.usage->>'cache_write')::numeric END
      AS cache_write,
    CASE WHEN jsonb_typeof(of.usage->'output') = 'number' THEN (of.usage->>'output')::numeric END AS output,
    (of.usage->>'provided_usd')::numeric AS provided, of.usage->>'processing' AS processing) told
"""


def _priced(model: str, at: str) -> str:
    """Joins the card that was valid in the hour of `at`, and what of it covers the request."""
    hour = f"date_trunc('hour', {at}, 'UTC')"
    prompt = "told.input + coalesce(told.cache_read, 0) + coalesce(told.cache_write, 0)"
    return f"""
        LEFT JOIN cards ON cards.model = {model} AND {hour} >= cards.valid_from
          AND (cards.valid_to IS NULL OR {hour} < cards.valid_to)
        {variant(prompt=f"({prompt})", at=at, processing="told.processing")}
    """


def answers_of_models(rates: Mapping[int, Rates], since: datetime, until: datetime) -> list[Entry]:
    """Answers to benchmarks by external models; a run belongs to the hour it started in. Imported: paid elsewhere."""
    found = rows(
        f"""
        WITH {CARDS}
        SELECT run.model, cards.id AS card, covering.variant, {_COUNTED}
        FROM evals_evalrun run JOIN evals_score of ON of.run_id = run.id {_TOLD}
        {_priced("run.model", "run.started_at")}
        WHERE run.project_id = %(project)s AND run.started_at >= %(since)s AND run.started_at < %(until)s
          AND run.model IS NOT NULL AND of.status <> 'error' AND run.source_key IS NULL
        GROUP BY run.model, cards.id, covering.variant
        """,  # noqa: S608 - literals above
        since,
        until,
    )
    return [_billed(row, "proving", rates) for row in found]


def judgements_of_models(
    rates: Mapping[int, Rates], own: Sequence[str], since: datetime, until: datetime
) -> list[Entry]:
    found = rows(
        f"""
        WITH {CARDS}
        SELECT judge.model, cards.id AS card, covering.variant, {_COUNTED}
        FROM evals_judgecall of JOIN evals_judgeversion judge ON judge.id = of.judge_id {_TOLD}
        {_priced("judge.model", "of.created_at")}
        WHERE of.project_id = %(project)s AND of.created_at >= %(since)s AND of.created_at < %(until)s
          AND of.verdict <> 'error' AND NOT of.is_cached
        GROUP BY judge.model, cards.id, covering.variant
        """,  # noqa: S608 - literals above
        since,
        until,
    )
    return [_billed(row, "judging", rates) for row in found if not _is_ours(row["model"], own)]


def lessons_of_models(rates: Mapping[int, Rates], own: Sequence[str], since: datetime, until: datetime) -> list[Entry]:
    """What teachers behind an address were asked for the sake of training."""
    found = rows(
        f"""
        WITH {CARDS}
        SELECT of.model, cards.id AS card, covering.variant, {_COUNTED}
        FROM rl_online_teacheranswer of {_TOLD}
        {_priced("of.model", "of.created_at")}
        WHERE of.project_id = %(project)s AND of.created_at >= %(since)s AND of.created_at < %(until)s
          AND of.usage <> '{{}}'::jsonb
        GROUP BY of.model, cards.id, covering.variant
        """,  # noqa: S608 - literals above
        since,
        until,
    )
    return [_billed(row, "training", rates) for row in found if not _is_ours(row["model"], own)]


def canaries_of_models(own: Sequence[str], since: datetime, until: datetime) -> list[Entry]:
    runs = CanaryRun.objects.filter(state=RunState.DONE, finished_at__gte=since, finished_at__lt=until)
    found = runs.values_list("judge__model", "num_calls", "num_unpriced", "cost_usd").order_by("-finished_at")
    return [
        Entry(
            name=model,
            policy=None,
            version=None,
            purpose="judging",
            spend=Spend(calls=calls, unpriced=unpriced, cost_usd=cost or Decimal(0)),
        )
        for model, calls, unpriced, cost in found[:MAX_CANARY_RUNS]
        if not _is_ours(model, own)
    ]


def _billed(row: Mapping[str, Any], purpose: str, rates: Mapping[int, Rates]) -> Entry:
    """Calls that were billed when they were made, and those whose tokens a card prices now."""
    spend = Spend(calls=int(row["priced"]), cost_usd=row["cost"], provided_usd=row["provided"])
    if unbilled := int(row["calls"] - row["priced"]):
        silent = unbilled - int(row["counted"])
        spend += spend_on_tokens(usage(row), prices(row, rates), calls=unbilled, without_usage=silent)
    return Entry(
        name=row["model"],
        policy=None,
        version=None,
        purpose=purpose,
        spend=spend,
        tokens=tokens(row),
        cards=used(row) if unbilled else frozenset(),
    )


def own_policies() -> list[str]:
    return list(Policy.objects.values_list("name", flat=True))


def _is_ours(model: str, own: Sequence[str]) -> bool:
    """Answered through the gateway, so that its calls are turns already."""
    policy, at, version = model.rpartition("@")
    return bool(at) and policy in own and version.isdigit()
