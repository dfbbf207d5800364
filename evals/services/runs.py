"""Measuring a checkpoint or a model on a benchmark: ask, score, keep.

Every answer is stored with its score as it comes, so a run that is interrupted goes on where it was: what is answered
is never asked again. No transaction is open while answers are awaited or run.
"""

import hashlib
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.utils import timezone

from evals.judging.completer import Completer, Completion, CompletionFailed, CompletionRefused
from evals.models import Benchmark, EvalRun, EvalState, Problem, Score, ScoreStatus
from evals.scorers.registry import scorer_named
from evals.scorers.scorer import Score as Measured
from evals.scorers.scorer import Scorer, Status
from evals.selectors import REFUSED, find_benchmark, prompt_of, spec_of
from evals.services.asking import Came, TookTooLong, answers
from registry.errors import InvalidInput
from registry.tenancy import tenant

CONCURRENCY = 32
TIMED_CONCURRENCY = 8  # where seconds count: waiting behind other answers is not the model's doing
PROBLEMS_AT_ONCE = 1000  # held in memory
WRITE_EVERY = 16  # answers per transaction,
WRITE_WITHIN_S = 1.0  # but none that comes later than this after the last one waits for others
GRACE_S = 10.0  # after a deadline, to score what has come; the rest is asked again
MAY_BE_ASKED_AGAIN = Q(status__in=(ScoreStatus.ERROR, ScoreStatus.INFRA)) & ~Q(parts__has_key=REFUSED)
STOPPED = (EvalState.CANCELLED, EvalState.FAILED)

# In Score.parts: what an answer ran out of. Cut off at its tokens it is scored as far as it came; one that took too
# long is not whole, and unscored.
BUDGET, TOKENS, SECONDS = "budget", "tokens", "seconds"

Key = tuple[str, int]  # problem id and repeat
Progress = Callable[[int, int], None]  # answered so far, of how many


@dataclass(frozen=True, kw_only=True)
class _Plan:
    run: EvalRun
    problem_ids: list[str]  # that the run asks
    missing: list[Key]  # still to be answered; every problem once before one is asked a second time
    num_answers: int


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
    return _ask(project_id, plan, completer, deadline=deadline, concurrency=concurrency, on_progress=on_progress)


def continue_run(
    project_id: UUID,
    run_id: UUID,
    *,
    completer: Completer,
    concurrency: int,
    deadline: float | None = None,
    on_progress: Progress | None = None,
) -> EvalRun:
    """Answer and score what a run that somebody asked for still lacks, until `deadline` or until it is cancelled."""
    with tenant(project_id):
        run = EvalRun.objects.select_related("benchmark").get(pk=run_id)
        plan = _plan_of(run, retry_unscored=False)
    if run.state in STOPPED:
        return run
    return _ask(
        project_id, plan, completer, deadline=deadline, concurrency=concurrency, on_progress=on_progress,
        is_over=lambda: _is_stopped(project_id, run_id),
    )  # fmt: skip


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
    if unknown := sorted(answered.keys() - set(plan.problem_ids)):
        raise InvalidInput(f"{benchmark} has no problem {', '.join(unknown[:5])}", field="answered")
    origin = model or checkpoint or ""
    given = (
        (problem, key, Completion(text=answered[key[0]], origin=origin))
        for part in _parts([key for key in plan.missing if key[0] in answered])
        for key, problem in _problems_of(project_id, plan, part).items()
    )
    return _keep(project_id, plan, given, on_progress=None)


def asked_problems(problem_ids: Iterable[str], limit: int | None) -> set[str]:
    """All, or `limit` of them: those whose digests come first, so that every run with this limit asks the same ones.

    The first of a file would be no fair part of it: problems are often sorted by topic, or by how hard they are.
    """
    ids = sorted(problem_ids, key=lambda one: hashlib.sha256(one.encode()).digest())
    return set(ids if limit is None else ids[:limit])


def seed_of(seed: int, problem_id: str, repeat: int) -> int:
    """The seed of one answer, in [0, 2**31): others for each repeat of a problem, and the same for every checkpoint.

    Problems do not share seeds, since the same random numbers everywhere would tie what should be independent.
    """
    first = int.from_bytes(hashlib.sha256(f"{seed}:{problem_id}".encode()).digest()[:4])
    return (first + repeat) % 2**31


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
        if source is None:
            check_prompts(found)  # before the run is there
        run, _ = EvalRun.objects.exclude(state__in=STOPPED).get_or_create(
            benchmark=found,
            checkpoint=checkpoint,
            model=model,
            scorer=scorer,
            sampling=sampling,
            source=source or {},
            asked_by="",
        )
        return _plan_of(run, retry_unscored=retry_unscored)


def check_prompts(benchmark: Benchmark) -> None:
    """Raises InvalidInput for a problem that came in without its text, so that nobody can be asked."""
    without = Problem.objects.filter(benchmark=benchmark, prompt=None, messages__isnull=True).order_by("pk").first()
    if without is not None:
        prompt_of(without)


def _plan_of(run: EvalRun, *, retry_unscored: bool) -> _Plan:
    rows = Problem.objects.filter(benchmark_id=run.benchmark_id).order_by("id")
    ids = list(rows.values_list("problem_id", flat=True))
    if run.num_problems is not None:
        asked = asked_problems(ids, run.num_problems)
        ids = [key for key in ids if key in asked]
    kept = Score.objects.filter(run=run, scorer=run.scorer)
    if retry_unscored:
        kept = kept.exclude(MAY_BE_ASKED_AGAIN)
    done = set(kept.values_list("problem__problem_id", "repeat"))
    keys = [(key, repeat) for repeat in range(run.num_repeats) for key in ids]
    return _Plan(run=run, problem_ids=ids, missing=[key for key in keys if key not in done], num_answers=len(keys))


def _ask(
    project_id: UUID,
    plan: _Plan,
    completer: Completer,
    *,
    deadline: float | None,
    concurrency: int,
    on_progress: Progress | None,
    is_over: Callable[[], bool] | None = None,
) -> EvalRun:
    answered = _answers(
        project_id, plan, completer, deadline=deadline, concurrency=concurrency, is_over=is_over or (lambda: False)
    )
    with closing(answered):
        return _keep(project_id, plan, answered, deadline=deadline, on_progress=on_progress)


def _answers(
    project_id: UUID,
    plan: _Plan,
    completer: Completer,
    *,
    deadline: float | None,
    concurrency: int,
    is_over: Callable[[], bool],
) -> Generator[tuple[Problem, Key, Came], None, None]:
    """What came of each that is missing. No more than PROBLEMS_AT_ONCE problems are held, whose tests may be large."""
    run = plan.run
    for part in _parts(plan.missing):
        problems = _problems_of(project_id, plan, part)
        asked = answers(
            completer,
            {key: prompt_of(problem) for key, problem in problems.items()},
            run.sampling,
            concurrency=concurrency,
            deadline=deadline,
            seeds={} if run.seed is None else {key: seed_of(run.seed, *key) for key in part},
            seconds_each=run.seconds_per_answer,
            is_over=is_over,
        )
        with closing(asked):
            for key, came in asked:
                yield problems[key], key, came
        if is_over() or (deadline is not None and time.monotonic() > deadline):
            return


def _parts(keys: Sequence[Key]) -> Iterator[Sequence[Key]]:
    return (keys[first : first + PROBLEMS_AT_ONCE] for first in range(0, len(keys), PROBLEMS_AT_ONCE))


def _problems_of(project_id: UUID, plan: _Plan, keys: Sequence[Key]) -> dict[Key, Problem]:
    with tenant(project_id):
        rows = Problem.objects.filter(benchmark_id=plan.run.benchmark_id, problem_id__in={key for key, _ in keys})
        found = {problem.problem_id: problem for problem in rows}
    return {key: found[key[0]] for key in keys}


def _keep(
    project_id: UUID,
    plan: _Plan,
    answered: Iterable[tuple[Problem, Key, Came]],
    *,
    deadline: float | None = None,
    on_progress: Progress | None,
) -> EvalRun:
    num_done = plan.num_answers - len(plan.missing)
    scorer = scorer_named(plan.run.scorer)
    for rows in _batches(_row(plan.run, problem, key, came, scorer) for problem, key, came in answered):
        with tenant(project_id):
            if EvalRun.objects.filter(pk=plan.run.pk, state__in=STOPPED).exists():
                break
            for row in rows:
                _store(row)
        num_done += len(rows)
        if on_progress is not None:
            on_progress(num_done, plan.num_answers)
        if deadline is not None and time.monotonic() > deadline + GRACE_S:
            break
    return _finish(project_id, plan)


def _batches(rows: Iterable[Score]) -> Iterator[list[Score]]:
    waiting: list[Score] = []
    written_at = time.monotonic()
    for row in rows:
        waiting.append(row)
        if len(waiting) == WRITE_EVERY or time.monotonic() - written_at > WRITE_WITHIN_S:
            yield waiting
            waiting, written_at = [], time.monotonic()
    if waiting:
        yield waiting


def _finish(project_id: UUID, plan: _Plan) -> EvalRun:
    run = plan.run
    with tenant(project_id):
        if Score.objects.filter(run=run, scorer=run.scorer).count() == plan.num_answers:
            EvalRun.objects.filter(pk=run.pk, state=EvalState.RUNNING).update(
                state=EvalState.DONE, finished_at=timezone.now()
            )
        return EvalRun.objects.select_related("benchmark").get(pk=run.pk)


def ask_again(run: EvalRun) -> int:
    """Open a run again where answers could not be had or the sandbox failed, and say how many. Inside a tenant."""
    num_gone, _ = Score.objects.filter(MAY_BE_ASKED_AGAIN, run=run, scorer=run.scorer).delete()
    if num_gone:
        EvalRun.objects.filter(pk=run.pk).update(state=EvalState.RUNNING, finished_at=None, error="")
    return num_gone


def _is_stopped(project_id: UUID, run_id: UUID) -> bool:
    with tenant(project_id):
        return EvalRun.objects.filter(pk=run_id, state__in=STOPPED).exists()


def _row(run: EvalRun, problem: Problem, key: Key, completion: Came, scorer: Scorer) -> Score:
    of: dict[str, Any] = {"run": run, "repeat": key[1], "seed": None if run.seed is None else seed_of(run.seed, *key)}
    if isinstance(completion, CompletionRefused):
        refused = Measured(value=None, status=Status.INFRA, explanation=str(completion), parts={REFUSED: True})
        return score_row(refused, scorer, problem, **of)
    if isinstance(completion, TookTooLong):
        late = Measured(value=None, status=Status.UNSCORED, explanation=str(completion), parts={BUDGET: SECONDS})
        return score_row(late, scorer, problem, **of)
    if isinstance(completion, CompletionFailed):
        measured = Measured(value=None, status=Status.ERROR, explanation=str(completion))
        return score_row(measured, scorer, problem, **of)
    row = score_row(scorer.score(spec_of(problem), completion.text), scorer, problem, completion=completion, **of)
    if completion.finish_reason == "length":
        row.parts = {**row.parts, BUDGET: TOKENS}
    return row


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
