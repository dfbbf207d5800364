"""Counts of requests, replies and verdicts of judges in a time, and what they cost. Inside a tenant."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db import connection
from django.db.models import Avg, Count, Max, Q

from evals.judge_evidence import current_ratings, judged_by
from evals.models import JudgeCall, VerdictKind
from registry.tenancy import current_project_id


@dataclass(frozen=True, kw_only=True, slots=True)
class Calls:
    num_calls: int = 0
    num_invalid: int = 0
    num_errors: int = 0
    num_first: int = 0
    num_sided: int = 0
    latency_ms: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgements:
    num_both: int = 0
    num_consistent: int = 0
    num_priced: int = 0
    num_unpriced: int = 0
    cost_usd: Decimal = Decimal(0)


def calls_of(ids: list[int], since: datetime, until: datetime) -> dict[int, Calls]:
    is_first = Q(order="lr", verdict="left") | Q(order="rl", verdict="right")
    rows = (
        JudgeCall.objects.filter(judge_id__in=ids, created_at__gte=since, created_at__lt=until, is_cached=False)
        .values("judge_id")
        .annotate(
            num_calls=Count("id"),
            num_invalid=Count("id", filter=Q(verdict=VerdictKind.INVALID)),
            num_errors=Count("id", filter=Q(verdict=VerdictKind.ERROR)),
            num_first=Count("id", filter=is_first),
            num_sided=Count("id", filter=Q(verdict__in=("left", "right"))),
            latency_ms=Avg("latency_ms"),
        )
    )
    return {row.pop("judge_id"): Calls(**row) for row in rows}


def judgements_in(ids: list[int], since: datetime, until: datetime) -> dict[int, Judgements]:
    """Per judgement first: whether its last words in both orders agree, and what all its replies cost."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT judge_id, count(*) FILTER (WHERE lr <> '' AND rl <> ''),
                   count(*) FILTER (WHERE lr <> '' AND lr = rl),
                   count(*) FILTER (WHERE unpriced = 0 AND replies > 0), count(*) FILTER (WHERE unpriced > 0),
                   coalesce(sum(cost) FILTER (WHERE unpriced = 0), 0)
            FROM (
              SELECT judge_id, comparison_id, rating_id, sum(cost_usd) AS cost,
                count(*) FILTER (WHERE verdict <> 'error' AND NOT is_cached) AS replies,
                count(*) FILTER (WHERE verdict <> 'error' AND cost_usd IS NULL AND NOT is_cached) AS unpriced,
                coalesce((array_agg(verdict ORDER BY id DESC)
                  FILTER (WHERE "order" = 'lr' AND verdict NOT IN ('invalid', 'error')))[1], '') AS lr,
                coalesce((array_agg(verdict ORDER BY id DESC)
                  FILTER (WHERE "order" = 'rl' AND verdict NOT IN ('invalid', 'error')))[1], '') AS rl
              FROM evals_judgecall
              WHERE project_id = %s AND judge_id = ANY(%s) AND created_at >= %s AND created_at < %s
                AND anchor_run_id IS NULL
              GROUP BY judge_id, comparison_id, rating_id) judged
            GROUP BY judge_id
            """,
            [current_project_id(), ids, since, until],
        )
        return {
            row[0]: Judgements(
                num_both=row[1], num_consistent=row[2], num_priced=row[3], num_unpriced=row[4], cost_usd=row[5]
            )
            for row in cursor.fetchall()
        }


def verdicts_of(ids: list[int], since: datetime, until: datetime) -> dict[int, dict[str, tuple[int, datetime]]]:
    """Judge -> verdict -> how many judgements, and when the last one was."""
    found: dict[int, dict[str, tuple[int, datetime]]] = defaultdict(dict)
    rows = judged_by(ids, since, until).values_list("judge_id", "verdict").annotate(n=Count("id"), at=Max("created_at"))
    for judge_id, verdict, n, at in rows:
        found[judge_id][verdict] = (n, at)
    return found


def rating_states(ids: list[int], since: datetime, until: datetime) -> dict[int, dict[str, tuple[int, datetime]]]:
    """Judge -> state -> how many current ratings, and when the last one was opened."""
    found: dict[int, dict[str, tuple[int, datetime]]] = defaultdict(dict)
    rows = (
        current_ratings(ids, since, until)
        .values_list("judge_id", "state")
        .annotate(n=Count("id"), at=Max("created_at"))
    )
    for judge, state, n, at in rows:
        found[judge][state] = (n, at)
    return found
