"""Benchmarks of a project, what can be run on them, and how far a run is. Inside a tenant."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Count, Exists, OuterRef
from django.utils import timezone

from evals.models import Benchmark, EvalRun, EvalState, Problem, Score
from evals.scorers.registry import SCORERS
from evals.selectors_runs import counts_of
from jobs.models import Job, JobState
from registry.models import Checkpoint, Deployment
from rl_online.models import Overlap
from rl_online.services.benchmark_runs import work_on

MOST = 200
RECENT = 32  # answers that the rate is taken over


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    benchmark: Benchmark
    num_problems: int
    num_runs: int
    num_overlapping: int  # problems that stand in a sealed batch


def rows() -> list[Row]:
    """The newest benchmarks. Four queries, however many there are."""
    found = list(Benchmark.objects.order_by("-created_at", "-pk")[:MOST])
    keys = [one.pk for one in found]
    problems = dict(Problem.objects.filter(benchmark__in=keys).values_list("benchmark").annotate(n=Count("pk")))
    runs = dict(EvalRun.objects.filter(benchmark__in=keys).values_list("benchmark").annotate(n=Count("pk")))
    overlapping = dict(
        Overlap.objects.filter(problem__benchmark__in=keys)
        .values_list("problem__benchmark")
        .annotate(n=Count("problem", distinct=True))
    )
    return [
        Row(
            benchmark=one,
            num_problems=problems.get(one.pk, 0),
            num_runs=runs.get(one.pk, 0),
            num_overlapping=overlapping.get(one.pk, 0),
        )
        for one in found
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """What the form of a run offers."""

    benchmarks: Sequence[Benchmark]
    checkpoints: Sequence[str]  # what serves first, then the newest
    scorers: Sequence[str]


def choices() -> Choices:
    with_text = Problem.objects.filter(benchmark=OuterRef("pk")).exclude(prompt=None, messages=None)
    ready = Benchmark.objects.exclude(digest="", origin="").filter(Exists(with_text))
    serving = Deployment.objects.filter(alias="default").select_related("checkpoint__policy")
    names = [str(one.checkpoint) for one in serving.order_by("policy__created_at")]
    newest = Checkpoint.objects.filter(files_deleted_at=None).select_related("policy").order_by("-created_at")[:60]
    return Choices(
        benchmarks=ready.order_by("-created_at", "-pk")[:MOST],
        checkpoints=list(dict.fromkeys([*names, *map(str, newest)])),
        scorers=sorted(SCORERS, key=lambda name: (name != "unit_tests", name)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a run is that somebody asked for."""

    run: EvalRun
    num_problems: int  # that it asks
    num_asked: int  # answers
    num_answered: int
    num_right: int | None  # with the full score; None: scores are graded
    num_scored: int
    num_failed: int  # that could not be had, or were lost to the sandbox
    num_refused: int
    num_late: int
    num_cut: int
    per_second: float | None
    seconds_left: float | None
    job: Job | None
    waits_for: str

    @property
    def is_live(self) -> bool:
        return self.run.state == EvalState.RUNNING


def num_asked(run: EvalRun) -> int:
    """Problems of its benchmark that a run made here asks."""
    return run.num_problems or Problem.objects.filter(benchmark_id=run.benchmark_id).count()


def progress_of(run: EvalRun) -> Progress:
    counts = counts_of(run)
    num_problems = num_asked(run)
    missing = num_problems * run.num_repeats - counts.num_answers
    rate = _rate(run) if run.state == EvalState.RUNNING else None
    job = work_on(run)
    is_waiting = job is not None and job.state == JobState.QUEUED
    return Progress(
        run=run,
        num_problems=num_problems,
        num_asked=num_problems * run.num_repeats,
        num_answered=counts.num_answers,
        num_right=counts.num_right,
        num_scored=counts.num_scored,
        num_failed=counts.num_failed,
        num_refused=counts.num_refused,
        num_late=counts.num_late,
        num_cut=counts.num_cut,
        per_second=rate,
        seconds_left=missing / rate if rate else None,
        job=job,
        waits_for=job.last_error.strip().rsplit("\n", 1)[-1] if job is not None and is_waiting else "",
    )


def _rate(run: EvalRun) -> float | None:
    """Answers a second over the newest ones; None before there are two, and where none came for a minute."""
    times = list(Score.objects.filter(run=run).order_by("-created_at").values_list("created_at", flat=True)[:RECENT])
    now = timezone.now()
    if len(times) < 2 or now - times[0] > timedelta(minutes=1):
        return None
    return len(times) / max(0.1, (now - times[-1]).total_seconds())
