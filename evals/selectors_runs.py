"""What the page of one run needs: how it stands by each scorer, what its file claims, and its results page by page.

Inside a tenant. The problem is the unit: repeats are averaged first, and the standard error is over problems.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import connection

from evals.models import ComparisonSet, EvalRun, Score
from registry.errors import NotFound
from registry.tenancy import current_project_id

PAGE = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class ByScorer:
    """How a run stands by one scorer. What is not scored is in no mean and is counted beside it."""

    scorer: str
    num_answers: int
    num_scored: int  # answers
    num_unscored: int
    num_errors: int
    num_infra: int
    num_problems: int  # with a scored answer: the n of mean and stderr
    mean: float | None  # over problems; None where nothing is scored
    stderr: float | None  # of that mean; None below two problems, where it is not defined
    num_right: int | None  # problems with the full score, where every problem is 0 or 1; None else


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """What the answers of a run took, each answer once however many scorers it has."""

    num_answers: int
    num_counted: int  # those with a count of tokens
    input: int
    cache_read: int
    cache_write: int
    output: int
    reasoning: int  # a part of output
    num_priced: int  # those with a cost reported
    cost_usd: Decimal | None  # of the priced ones; None: none is


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """A claim of the file beside what its results give."""

    claim: Mapping[str, Any]  # evals.importers.record.Claim
    measured: ByScorer | None  # None: the file has no results of this scorer
    agrees: bool | None  # None: nothing to compare, because the metric is no mean, or not all results are here


def find_run(run_id: UUID) -> EvalRun:
    """With its benchmark. Raises NotFound."""
    found = EvalRun.objects.select_related("benchmark").filter(pk=run_id).first()
    if found is None:
        raise NotFound("no such run")
    return found


def find_comparison_set(set_id: UUID) -> ComparisonSet:
    """With its benchmark. Raises NotFound."""
    found = ComparisonSet.objects.select_related("benchmark").filter(pk=set_id).first()
    if found is None:
        raise NotFound("no such comparisons")
    return found


def by_scorer(run: EvalRun) -> list[ByScorer]:
    """The scorer that stands for the run first, then by name. One query."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH problems AS (
              SELECT scorer, problem_id, avg(value) AS value, count(*) AS answers,
                count(*) FILTER (WHERE status = 'scored') AS scored,
                count(*) FILTER (WHERE status = 'unscored') AS unscored,
                count(*) FILTER (WHERE status = 'error') AS errors,
                count(*) FILTER (WHERE status = 'infra') AS infra
              FROM evals_score WHERE project_id = %(project)s AND run_id = %(run)s GROUP BY scorer, problem_id)
            SELECT scorer, sum(answers)::bigint, sum(scored)::bigint, sum(unscored)::bigint, sum(errors)::bigint,
              sum(infra)::bigint, count(value), avg(value), stddev_samp(value) / sqrt(nullif(count(value), 0)),
              CASE WHEN bool_and(value IN (0, 1)) THEN count(*) FILTER (WHERE value = 1) END
            FROM problems GROUP BY scorer ORDER BY scorer <> %(first)s, scorer
            """,
            {"project": current_project_id(), "run": run.pk, "first": run.scorer},
        )
        return [
            ByScorer(
                scorer=scorer,
                num_answers=answers,
                num_scored=scored,
                num_unscored=unscored,
                num_errors=errors,
                num_infra=infra,
                num_problems=n,
                mean=mean,
                stderr=stderr,
                num_right=right if n else None,
            )
            for scorer, answers, scored, unscored, errors, infra, n, mean, stderr, right in cursor.fetchall()
        ]


def spent(run: EvalRun) -> Spent:
    """One query."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH answers AS (
              SELECT DISTINCT ON (problem_id, repeat) usage, cost_usd FROM evals_score
              WHERE project_id = %(project)s AND run_id = %(run)s
              ORDER BY problem_id, repeat, (usage = '{}'), cost_usd NULLS LAST, id)
            SELECT count(*), count(*) FILTER (WHERE usage ? 'output' OR usage ? 'input'),
              coalesce(sum((usage->>'input')::numeric), 0)::bigint,
              coalesce(sum((usage->>'cache_read')::numeric), 0)::bigint,
              coalesce(sum((usage->>'cache_write')::numeric), 0)::bigint,
              coalesce(sum((usage->>'output')::numeric), 0)::bigint,
              coalesce(sum((usage->>'reasoning')::numeric), 0)::bigint,
              count(cost_usd), sum(cost_usd)
            FROM answers
            """,
            {"project": current_project_id(), "run": run.pk},
        )
        row = cursor.fetchone()
    names = ("num_answers", "num_counted", "input", "cache_read", "cache_write", "output", "reasoning", "num_priced")
    return Spent(**dict(zip(names, row[:8], strict=True)), cost_usd=row[8])


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """What became of a run's answers so far, by the scorer that stands for it."""

    num_answers: int
    num_scored: int
    num_right: int | None  # with the full score; None: one has a score between
    num_failed: int  # could not be had, or was lost to the sandbox; refused ones are no part of it
    num_refused: int  # whoever was asked said that the request itself is wrong
    num_late: int  # gave up because it took too long
    num_cut: int  # cut off at its tokens


def counts_of(run: EvalRun) -> Counts:
    """One query."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT count(*), count(value), CASE WHEN coalesce(bool_and(value IN (0, 1)), true)
                THEN count(*) FILTER (WHERE value = 1) END,
              count(*) FILTER (WHERE status IN ('error', 'infra') AND NOT parts ? 'refused'),
              count(*) FILTER (WHERE parts ? 'refused'), count(*) FILTER (WHERE parts->>'budget' = 'seconds'),
              count(*) FILTER (WHERE parts->>'budget' = 'tokens')
            FROM evals_score WHERE project_id = %s AND run_id = %s AND scorer = %s
            """,
            [current_project_id(), run.pk, run.scorer],
        )
        row = cursor.fetchone()
    names = ("num_answers", "num_scored", "num_right", "num_failed", "num_refused", "num_late", "num_cut")
    return Counts(**dict(zip(names, row, strict=True)))


MEANS = {"acc", "accuracy", "mean", "exact_match", "acc_norm"}
TOLERANCE = 5e-4  # of what files round to


def checked_claims(run: EvalRun, measured: Sequence[ByScorer]) -> list[Checked]:
    """Pure. Claims in the order of the file."""
    known = {one.scorer: one for one in measured}
    return [_checked(claim, known.get(claim["scorer"])) for claim in run.claims]


def _checked(claim: Mapping[str, Any], measured: ByScorer | None) -> Checked:
    value, n, where = claim.get("value"), claim.get("n"), claim.get("where", "")
    is_mean = claim["metric"] in MEANS and (not where or where.startswith("filter ") or where == "reducer mean")
    if measured is None or measured.mean is None or value is None or not is_mean or n != measured.num_problems:
        return Checked(claim=claim, measured=measured, agrees=None)
    return Checked(claim=claim, measured=measured, agrees=abs(measured.mean - value) <= TOLERANCE)


def results(run: EvalRun, *, scorer: str | None = None, after: int = 0, size: int = PAGE) -> list[Score]:
    """A page of results with their problems, without the raw records; `after` is the id of the last one shown."""
    rows = Score.objects.filter(run=run, id__gt=after).select_related("problem").defer("raw").order_by("id")
    return list((rows.filter(scorer=scorer) if scorer is not None else rows)[:size])


def find_result(run: EvalRun, score_id: int) -> Score:
    """One result with its raw record. Raises NotFound."""
    found = Score.objects.select_related("problem").filter(run=run, pk=score_id).first()
    if found is None:
        raise NotFound("no such result")
    return found


def slices(run: EvalRun) -> dict[str, dict[str, int]]:
    """Name -> value -> how many answers of the scorer that stands for the run have it."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT slice.key, slice.value, count(*) FROM evals_score, jsonb_each_text(slices) slice
            WHERE project_id = %s AND run_id = %s AND scorer = %s GROUP BY 1, 2 ORDER BY 1, 3 DESC, 2 LIMIT 1000
            """,
            [current_project_id(), run.pk, run.scorer],
        )
        found: dict[str, dict[str, int]] = {}
        for name, value, times in cursor.fetchall():
            found.setdefault(name, {})[value] = times
    return found


def imported_runs(*, limit: int = 100) -> list[EvalRun]:
    """The newest that came from elsewhere, from the rows of runs alone: no result is read."""
    runs = EvalRun.objects.filter(source_key__isnull=False).select_related("benchmark").defer("raw", "settings")
    return list(runs.order_by("-started_at", "-id")[:limit])
