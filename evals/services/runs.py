"""Measuring a checkpoint or a model on a benchmark: ask, score, keep.

Every answer is stored with its score as it comes, so a run that is interrupted goes on where it was: what is answered
is never asked again. No transaction is open while answers are awaited or run.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.utils import timezone

from evals.judging.completer import Completer, Completion, CompletionFailed, CompletionRefused
from evals.models import Benchmark, EvalRun, Problem, RunState, Score, ScoreStatus
from evals.scorers.registry import scorer_named
from evals.scorers.scorer import Score as Measured
from evals.scorers.scorer import Scorer, Status
from evals.selectors import REFUSED, find_benchmark, prompt_of, spec_of
from evals.services.asking import Answer, answers
from registry.errors import InvalidInput
from registry.tenancy import tenant

CONCURRENCY = 32
WRITE_EVERY = 16  # answers per transaction
MAY_BE_ASKED_AGAIN = Q(status__in=(ScoreStatus.ERROR, ScoreStatus.INFRA)) & ~Q(parts__has_key=REFUSED)

Progress = Callable[[int, int], None]  # answered so far, of how many


@dataclass(frozen=True, kw_only=True)
class _Plan:
    run: EvalRun
    problems: dict[str, Problem]  # those still to be answered
    num_problems: int


def run_benchmark(
    project_id: UUID,
    *,
    benchmark: str,
    completer: Completer,
    checkpoint: str | None = None,
    model: str | None = None,
    scorer: str = "unit_tests",
    sampling: Mapping[str, Any] | None = None,
    deadline: float | None = None,
    retry_unscored: bool = False,
    concurrency: int = CONCURRENCY,
    on_progress: Progress | None = None,
) -> EvalRun:
    """Answer and score what this run still lacks; its state is done when every problem has an answer.

    The run of one (benchmark, checkpoint or model, scorer, sampling) is found again, and returned at once when it is
    done. `deadline` (time.monotonic()) ends the call early, with the run still running. `retry_unscored` asks again
    where the answer could not be had or the sandbox failed, but not where the request was refused as wrong.
    """
    plan = _plan(
        project_id,
        benchmark=benchmark,
        checkpoint=checkpoint,
        model=model,
        scorer=scorer,
        sampling=dict(sampling or {}),
        retry_unscored=retry_unscored,
    )
    prompts = {key: prompt_of(problem) for key, problem in plan.problems.items()}
    asked = answers(completer, prompts, sampling or {}, concurrency=concurrency, deadline=deadline)
    with closing(asked):
        return _keep(project_id, plan, asked, scorer_named(scorer), on_progress=on_progress)


def score_answers(
    project_id: UUID,
    *,
    benchmark: str,
    answered: Mapping[str, str],
    checkpoint: str | None = None,
    model: str | None = None,
    scorer: str = "unit_tests",
    source: Mapping[str, Any] | None = None,
) -> EvalRun:
    """Score answers that exist already, problem id -> output. Raises InvalidInput for an id the benchmark lacks."""
    plan = _plan(
        project_id,
        benchmark=benchmark,
        checkpoint=checkpoint,
        model=model,
        scorer=scorer,
        sampling={},
        source=dict(source or {"format": "answers"}),
    )
    with tenant(project_id):
        known = set(Problem.objects.filter(benchmark=plan.run.benchmark).values_list("problem_id", flat=True))
    if unknown := sorted(answered.keys() - known):
        raise InvalidInput(f"{benchmark} has no problem {', '.join(unknown[:5])}", field="answered")
    origin = model or checkpoint or ""
    given: Iterable[Answer] = (
        (key, Completion(text=answered[key], origin=origin)) for key in plan.problems if key in answered
    )
    return _keep(project_id, plan, given, scorer_named(scorer), on_progress=None)


def _plan(
    project_id: UUID,
    *,
    benchmark: str,
    checkpoint: str | None,
    model: str | None,
    scorer: str,
    sampling: dict[str, Any],
    source: dict[str, Any] | None = None,
    retry_unscored: bool = False,
) -> _Plan:
    if (checkpoint is None) == (model is None):
        raise InvalidInput("name exactly one of checkpoint and model", field="checkpoint")
    with tenant(project_id):
        found = find_benchmark(benchmark)
        # The row lock lets two workers agree on one run.
        Benchmark.objects.select_for_update(no_key=True).get(pk=found.pk)
        run, _ = EvalRun.objects.exclude(state=RunState.FAILED).get_or_create(
            benchmark=found, checkpoint=checkpoint, model=model, scorer=scorer, sampling=sampling, source=source or {}
        )
        problems = {problem.problem_id: problem for problem in Problem.objects.filter(benchmark=found).order_by("id")}
        if source is None:
            for problem in problems.values():
                prompt_of(problem)  # one that came in without its text is refused before the run is there
        kept = Score.objects.filter(run=run)
        if retry_unscored:
            kept = kept.exclude(MAY_BE_ASKED_AGAIN)
        done = set(kept.values_list("problem__problem_id", flat=True))
    missing = {key: problem for key, problem in problems.items() if key not in done}
    return _Plan(run=run, problems=missing, num_problems=len(problems))


def _keep(
    project_id: UUID, plan: _Plan, answered: Iterable[Answer], scorer: Scorer, *, on_progress: Progress | None
) -> EvalRun:
    num_done = plan.num_problems - len(plan.problems)
    scored = (_row(plan, key, completion, scorer) for key, completion in answered)
    while rows := list(islice(scored, WRITE_EVERY)):
        with tenant(project_id):
            for row in rows:
                _store(row)
        num_done += len(rows)
        if on_progress is not None:
            on_progress(num_done, plan.num_problems)
    return _finish(project_id, plan.run)


def _finish(project_id: UUID, run: EvalRun) -> EvalRun:
    with tenant(project_id):
        answered = Score.objects.filter(run=run).values("problem").distinct().count()
        if answered == Problem.objects.filter(benchmark_id=run.benchmark_id).count():
            EvalRun.objects.filter(pk=run.pk, state=RunState.RUNNING).update(
                state=RunState.DONE, finished_at=timezone.now()
            )
        return EvalRun.objects.select_related("benchmark").get(pk=run.pk)


def _row(plan: _Plan, key: str, completion: Completion | CompletionFailed, scorer: Scorer) -> Score:
    problem = plan.problems[key]
    if isinstance(completion, CompletionRefused):
        refused = Measured(value=None, status=Status.INFRA, explanation=str(completion), parts={REFUSED: True})
        return score_row(refused, scorer, problem, run=plan.run)
    if isinstance(completion, CompletionFailed):
        measured = Measured(value=None, status=Status.ERROR, explanation=str(completion))
        return score_row(measured, scorer, problem, run=plan.run)
    measured = scorer.score(spec_of(problem), completion.text)
    return score_row(measured, scorer, problem, run=plan.run, completion=completion)


def score_row(
    measured: Measured, scorer: Scorer, problem: Problem, *, completion: Completion | None = None, **of: Any
) -> Score:
    """The unsaved row of one measurement; `of` says whether it is of a run's answer or of a live turn."""
    row = Score(
        project_id=problem.project_id,
        problem=problem,
        **of,
        scorer=scorer.name,
        scorer_version=scorer.version,
        status=ScoreStatus(measured.status.value),
        value=measured.value,
        explanation=storable(measured.explanation),
        parts=storable(dict(measured.parts)),
        sandbox_level=measured.sandbox_level,
    )
    if completion is not None:
        row.output = storable(completion.text)
        row.usage, row.cost_usd, row.latency_ms = dict(completion.usage), completion.cost_usd, completion.latency_ms
    return row


def _store(row: Score) -> None:
    """Insert, or replace an answer that was not scored."""
    known = Score.objects.filter(run=row.run, problem=row.problem, scorer=row.scorer, repeat=row.repeat)
    if known.filter(status__in=(ScoreStatus.SCORED, ScoreStatus.UNSCORED)).exists():
        return  # another worker was first
    known.delete()
    row.save(force_insert=True)


def storable(value: Any) -> Any:
    """What an answer printed may hold a NUL or half a surrogate pair; PostgreSQL's text cannot."""
    if isinstance(value, str):
        return value.replace("\x00", "\N{SYMBOL FOR NULL}").encode(errors="replace").decode()
    if isinstance(value, dict):
        return {key: storable(item) for key, item in value.items()}
    return value
