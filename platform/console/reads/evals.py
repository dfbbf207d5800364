"""Benchmark runs as their pages show them: each mean with its interval, n and coverage, and who leads a benchmark.

The unit is the problem: repeats are averaged first. Where problems have a slice `family`, the error is clustered by it
if that is wider; a problem without one stands for itself, and a single family is no cluster.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from django.db import connection
from django.db.models import Count, Max, Q, QuerySet
from django.db.models.fields.json import KT

from evals.models import Benchmark, EvalRun, Problem, RunState, Score
from evals.selectors_repeats import Repeats, repeats_of, tries_of_runs
from evals.statistics.estimate import Estimate, Kind, around, unknown
from evals.statistics.proportions import Share, wilson, wilson_at
from registry.errors import NotFound
from registry.tenancy import current_project_id

TINY = 1e-12  # sums of squares below this are rounding
MOST_RUNS = 500  # of one benchmark that a leaderboard looks at, the newest
MOST_REPEATED = 50  # of them, whose pass@k is told
MOST_ANSWERS = 50  # to one problem, on its page


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Sums over the problems of one family; `family` None: problems that have none."""

    family: str | None
    num_answered: int
    n: int  # with a score
    total: float
    squares: float
    is_right_or_wrong: bool  # every score is 0 or 1


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRow:
    """A run and its mean, by the scorer that stands for it."""

    run: EvalRun
    mean: Estimate

    @property
    def name(self) -> str:
        return self.run.checkpoint or self.run.model or "unnamed model"


def light_runs() -> "QuerySet[EvalRun]":
    """Without their large columns, with the `format` they came in."""
    runs = EvalRun.objects.annotate(format=KT("source__format")).select_related("benchmark")
    return runs.defer("raw", "settings", "claims", "notes")


def with_means(runs: Sequence[EvalRun]) -> list[RunRow]:
    """Two queries, however many runs there are."""
    parts = _parts([run.pk for run in runs])
    sizes = _sizes({run.benchmark_id for run in runs if not run.source_key})

    def asked(run: EvalRun) -> int:
        return 0 if run.source_key else run.num_problems or sizes.get(run.benchmark_id, 0)

    return [RunRow(run=run, mean=mean_of(parts.get(run.pk, []), num_asked=asked(run))) for run in runs]


def mean_of(parts: Sequence[Part], *, num_asked: int = 0) -> Estimate:
    """Pure. Of shares Wilson's interval, else t, cut to [0, 1] where all scores lie.

    `num_asked` counts problems that were not answered too.
    """
    n = sum(part.n for part in parts)
    asked = max(num_asked, sum(part.num_answered for part in parts))
    if not n:
        return unknown(f"none of {asked} is scored" if asked else "no results", num_asked=asked)
    mean = math.fsum(part.total for part in parts) / n
    clusters, clustered_se = _clustered(parts, mean, n)
    if all(part.is_right_or_wrong for part in parts if part.n):
        return _share(round(mean * n), n, clusters, clustered_se).estimate(num_asked=asked)
    variation = math.fsum(part.squares for part in parts) - n * mean**2
    se = math.sqrt(variation / (n - 1) / n) if n > 1 and variation > TINY else (0.0 if n > 1 else None)
    plain = around(mean, se, n=n, freedom=n - 1, num_asked=asked)
    if clusters is None or not clustered_se or plain.low is None:
        return _within(plain)
    clustered = around(mean, clustered_se, n=n, freedom=clusters - 1, num_asked=asked, num_clusters=clusters)
    return _within(clustered if clustered.low is not None and clustered.low < plain.low else plain)


def _within(mean: Estimate) -> Estimate:
    if mean.low is None or mean.high is None:
        return mean
    return replace(mean, low=max(0.0, mean.low), high=min(1.0, mean.high))


def _share(right: int, n: int, clusters: int | None, clustered_se: float | None) -> Share:
    share = right / n
    variance = share * (1 - share) / n
    if clusters is None or clustered_se is None:
        return wilson(right, n)
    effective_n = n / max(1.0, clustered_se**2 / variance) if variance else float(n)
    low, high = wilson_at(share, effective_n)
    return Share(
        successes=right, n=n, share=share, low=low, high=high, interval=Kind.WILSON_CLUSTERED, effective_n=effective_n,
        num_clusters=clusters,
    )  # fmt: skip


def _clustered(parts: Sequence[Part], mean: float, n: int) -> tuple[int | None, float | None]:
    """Clusters and sqrt(G/(G-1) sum of squared residual sums) / n; None without families, or with a single cluster."""
    families = [part for part in parts if part.family is not None and part.n]
    alone = [part for part in parts if part.family is None and part.n]
    num_clusters = len(families) + sum(part.n for part in alone)
    if not families or num_clusters < 2:
        return None, None
    residuals = math.fsum((part.total - part.n * mean) ** 2 for part in families)
    residuals += math.fsum(part.squares - 2 * mean * part.total + part.n * mean**2 for part in alone)
    return num_clusters, math.sqrt(num_clusters / (num_clusters - 1) * max(0.0, residuals)) / n


def _parts(runs: Sequence[UUID]) -> dict[UUID, list[Part]]:
    found: dict[UUID, list[Part]] = defaultdict(list)
    if not runs:
        return found
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH answer AS (
              SELECT s.run_id, s.problem_id, avg(s.value) AS value
              FROM evals_score s JOIN evals_evalrun r ON r.id = s.run_id AND r.scorer = s.scorer
              WHERE s.project_id = %s AND s.run_id = ANY(%s) GROUP BY 1, 2)
            SELECT a.run_id, p.slices->>'family', count(*), count(a.value), coalesce(sum(a.value), 0),
              coalesce(sum(a.value * a.value), 0), coalesce(bool_and(a.value IN (0, 1)), false)
            FROM answer a JOIN evals_problem p ON p.id = a.problem_id GROUP BY 1, 2
            """,
            [current_project_id(), list(runs)],
        )
        for run, family, answered, n, total, squares, is_right_or_wrong in cursor.fetchall():
            part = Part(
                family=family, num_answered=answered, n=n, total=total, squares=squares,
                is_right_or_wrong=is_right_or_wrong,
            )  # fmt: skip
            found[run].append(part)
    return found


def _sizes(benchmarks: Iterable[int]) -> dict[int, int]:
    """Problems of each benchmark; of an imported one nobody knows how many its writer asked."""
    if not benchmarks:
        return {}
    counted = Problem.objects.filter(benchmark_id__in=benchmarks).values_list("benchmark_id")
    return dict(counted.annotate(n=Count("id")))


# --- one benchmark, one problem ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """One line of a leaderboard: the newest finished run of a model or checkpoint."""

    row: RunRow
    num_runs: int  # of the same name and scorer
    repeats: Repeats | None  # of a run made here; None: one answer to each problem, or scores are graded
    finding: str  # against the best mean: best mean | behind | too few to say | no interval | no score


def find_benchmark(number: int) -> Benchmark:
    """Raises NotFound."""
    found = Benchmark.objects.filter(pk=number).first()
    if found is None:
        raise NotFound("no such benchmark")
    return found


def leaderboard(benchmark: Benchmark) -> dict[str, list[Standing]]:
    """Scorer -> standings, the best mean first: what two scorers measure is never ranked together."""
    runs = light_runs().filter(benchmark=benchmark, state=RunState.DONE).order_by("-started_at", "-id")[:MOST_RUNS]
    newest: dict[tuple[str, str | None, str | None], list[EvalRun]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.num_problems is not None):  # one of a part only where no other is
        newest[run.scorer, run.checkpoint, run.model].append(run)
    rows = with_means([same[0] for same in newest.values()])
    by_scorer: dict[str, list[RunRow]] = defaultdict(list)
    for row in rows:
        by_scorer[row.run.scorer].append(row)
    counts = {same[0].pk: len(same) for same in newest.values()}
    tried = tries_of_runs([row.run for row in rows if row.run.num_repeats > 1][:MOST_REPEATED])
    repeats = {run: repeats_of(tries or ()) for run, tries in tried.items()}
    return {scorer: _ranked(by_scorer[scorer], counts, repeats) for scorer in sorted(by_scorer)}


def _ranked(rows: Sequence[RunRow], counts: dict[UUID, int], repeats: Mapping[UUID, Repeats | None]) -> list[Standing]:
    order = sorted(rows, key=lambda row: (row.mean.value is None, -(row.mean.value or 0), row.name))
    best = order[0]
    return [
        Standing(row=row, num_runs=counts[row.run.pk], repeats=repeats.get(row.run.pk), finding=_finding(row, best))
        for row in order
    ]


def _finding(row: RunRow, best: RunRow) -> str:
    if row.mean.value is None:
        return "no score"
    if row is best:
        return "best mean"
    if row.mean.high is None or best.mean.low is None:
        return "no interval"
    return "behind" if row.mean.high < best.mean.low else "too few to say"


def find_problem(number: int) -> Problem:
    """With its benchmark. Raises NotFound."""
    found = Problem.objects.select_related("benchmark").filter(pk=number).first()
    if found is None:
        raise NotFound("no such problem")
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedBy:
    """What one run made of a problem, over its repeats."""

    run: EvalRun
    scorer: str
    right: int  # with the full score
    scored: int
    answered: int

    @property
    def is_flaky(self) -> bool:
        """Right in one repeat and wrong in another."""
        return 0 < self.right < self.scored


def tries_at(problem: Problem) -> list[TriedBy]:
    """Runs that answered it more than once, the newest first."""
    rows = (
        Score.objects.filter(problem=problem, run__isnull=False)
        .values("run", "scorer")
        .annotate(
            right=Count("id", filter=Q(value=1)),
            scored=Count("value"),
            answered=Count("id"),
            newest=Max("run__started_at"),
        )
        .filter(answered__gt=1)
        .order_by("-newest", "scorer")[:MOST_ANSWERS]
    )
    found = list(rows)
    runs = light_runs().in_bulk([row["run"] for row in found])
    return [
        TriedBy(
            run=runs[row["run"]], scorer=row["scorer"], right=row["right"], scored=row["scored"],
            answered=row["answered"],
        )
        for row in found
    ]  # fmt: skip


def answers_to(problem: Problem) -> list[Score]:
    """The newest answers, with their runs, without raw records."""
    rows = Score.objects.filter(problem=problem, run__isnull=False).select_related("run").defer("raw", "run__raw")
    return list(rows.order_by("-id")[:MOST_ANSWERS])
