"""Benchmark runs that a person asks for: a checkpoint answers through the gateway, by job `rl_online.benchmark`.

The job works in slices that fit a worker's time limit. Killed anywhere, it goes on with what is not stored yet, and
nothing stored is asked again. All but the job itself is called inside a tenant. Not here: asking and scoring
(evals.services.runs).
"""

import time
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone

from evals.models import Benchmark, EvalRun, EvalState, Problem
from evals.scorers.registry import SCORERS
from evals.selectors_runs import counts_of
from evals.services.completers import GatewayCompleter
from evals.services.runs import CONCURRENCY, TIMED_CONCURRENCY, ask_again, check_prompts, continue_run
from jobs.models import Job
from jobs.services import ClaimedJob, NotYet, enqueue
from registry.errors import Conflict, InvalidInput
from registry.models import Checkpoint
from registry.services import audit, find_checkpoint
from registry.tenancy import tenant
from rl_online.services.holdings import is_held, load_error
from rl_online.services.locks import alone

RUN_JOB = "rl_online.benchmark"
SLICE_S = 45.0  # of a worker's time; Celery ends a task at 90 s
LONG_SLICE_S = 70.0  # where one answer may take longer than that
MOST_SECONDS = 60.0  # that an answer may be given
MOST_IDLE = 3  # slices one after the other in which not even a single answer was finished
AT_ONCE, ANSWERS, IDLE_SLICES = "at_once", "answers", "idle_slices"  # in the job's payload, from slice to slice
LOOK_AGAIN_S = 2.0
PATIENCE_S = 15 * 60.0  # for an engine to hold the checkpoint
WAITING_SINCE = "waiting_since"  # Unix seconds, in the job's payload
AGAIN_AFTER_S = (10, 30, 90)  # answers that could not be had are asked for again after so long
MAX_SAMPLES = 1000
MAX_ANSWERS = 200_000
MAX_TOKENS = 100_000
NEEDS_TESTS = frozenset(SCORERS) - {"executability", "code_quality"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """How a benchmark is to be run.

    Each answer has the same budget: `max_tokens` and `seconds`. More than one sample of a problem needs a temperature,
    else all are the same.
    """

    scorer: str = "unit_tests"
    samples: int = 1  # answers to each problem
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int | None = None  # None: what the benchmark says, else 512
    stop: tuple[str, ...] | None = None  # None: what the benchmark says, else none
    seed: int = 0
    limit: int | None = None  # problems; the same ones in every run with this limit. None: all
    seconds: float | None = None  # None: as long as it takes


def start_run(benchmark: Benchmark, checkpoint: Checkpoint, wanted: Wanted, *, actor: str) -> EvalRun:
    """Raises InvalidInput naming the field that is wrong, Conflict for a draft or a checkpoint without its files."""
    if benchmark.is_draft:
        raise Conflict(f"{benchmark} is still being collected; close it first")
    if checkpoint.files_deleted_at is not None:
        raise Conflict(f"the files of {checkpoint} are deleted: {checkpoint.files_deleted_reason}")
    _check(wanted)
    check_prompts(benchmark)
    problems = Problem.objects.filter(benchmark=benchmark)
    if wanted.scorer in NEEDS_TESTS and not _have_tests(problems):
        raise InvalidInput(f"none of its problems has tests, which {wanted.scorer} needs", field="scorer")
    num_all = problems.count()
    num_problems = min(wanted.limit or num_all, num_all)
    if num_problems * wanted.samples > MAX_ANSWERS:
        raise InvalidInput(
            f"{num_problems * wanted.samples:,} answers; ask for at most {MAX_ANSWERS:,}", field="samples"
        )
    run = EvalRun.objects.create(
        benchmark=benchmark,
        checkpoint=str(checkpoint),
        scorer=wanted.scorer,
        sampling=_sampling(benchmark, wanted),
        num_repeats=wanted.samples,
        num_problems=num_problems if num_problems < num_all else None,
        seed=wanted.seed,
        seconds_per_answer=wanted.seconds,
        asked_by=actor,
    )
    audit("start", "benchmark run", run.id, actor=actor, after={"benchmark": str(benchmark), "of": str(checkpoint)})
    _enqueue(run)
    return run


def cancel_run(run: EvalRun, *, actor: str) -> None:
    """What is answered stays; what is being answered is given up. Raises Conflict when it is over already."""
    _check_asked(run)
    changed = EvalRun.objects.filter(pk=run.pk, state=EvalState.RUNNING).update(
        state=EvalState.CANCELLED, finished_at=timezone.now()
    )
    if not changed:
        raise Conflict(f"it is over already: {EvalRun.objects.get(pk=run.pk).state}")
    audit("cancel", "benchmark run", run.id, actor=actor)


def resume_run(run: EvalRun, *, actor: str) -> int:
    """Go on where it was cancelled or failed, and ask again where answers could not be had; returns how many those are.

    Raises Conflict when there is nothing to go on with.
    """
    _check_asked(run)
    if EvalRun.objects.select_for_update().get(pk=run.pk).state == EvalState.RUNNING:
        raise Conflict("it is under way; what could not be had is asked again at its end")
    num_again = ask_again(run)
    stopped = EvalRun.objects.filter(pk=run.pk, state__in=(EvalState.CANCELLED, EvalState.FAILED))
    if not stopped.update(state=EvalState.RUNNING, finished_at=None, error="") and not num_again:
        raise Conflict("every answer is there")
    audit("resume", "benchmark run", run.id, actor=actor)
    _enqueue(run)
    return num_again


def run_job(job: ClaimedJob) -> None:
    """A slice of a run. Raises NotYet until it is done, and while another job still asks for it."""
    # A run that is cancelled and resumed within one slice has two jobs; only one may ask.
    with alone(lock_of(job.payload["run"])) as is_alone:
        if not is_alone:
            raise NotYet(LOOK_AGAIN_S, "another job still asks for this run")
        _run_slice(job)


def lock_of(run_id: str) -> str:
    return f"benchmark run:{run_id}"


def _run_slice(job: ClaimedJob) -> None:
    assert job.project_id is not None
    run_id = UUID(job.payload["run"])
    with tenant(job.project_id):
        run = EvalRun.objects.get(pk=run_id)
        if run.state != EvalState.RUNNING:
            return
        checkpoint = find_checkpoint(run.checkpoint or "")
        refusal = _refusal(job, checkpoint)
        is_ready = is_held(checkpoint)
        if not refusal and is_ready == (WAITING_SINCE in job.payload):
            _note_wait(job, is_waiting=not is_ready)
    if refusal:
        with job.effect(), tenant(job.project_id):
            _fail(run_id, refusal)
        return
    if not is_ready:
        raise NotYet(LOOK_AGAIN_S, f"waits until the engine holds {checkpoint}")
    before = run
    run = _slice(job, run, checkpoint)
    if run.state == EvalState.RUNNING:
        _pace(job, before)
        raise NotYet(0, "answers are being made")
    if run.state == EvalState.DONE:
        _ask_again(job, run)


def next_at_once(at_once: int, *, num_done: int, most: int) -> int:
    """How many answers to ask at once in the next slice.

    What is under way when a slice ends is asked anew, so at most a third of the work may be lost to that.
    Example: 32 at once and 40 done in the slice -> 16; 1 at once and none done -> 1; 8 at once and 90 done -> 16
    """
    if num_done < 2 * at_once:
        return max(1, at_once // 2)
    return min(most, 2 * at_once) if num_done >= 8 * at_once else at_once


def _slice(job: ClaimedJob, run: EvalRun, checkpoint: Checkpoint) -> EvalRun:
    """Ask for as long as a worker may."""
    assert job.project_id is not None
    at_once = _at_once(job, run)
    is_long = at_once == 1 or (run.seconds_per_answer or 0.0) > SLICE_S / 2
    return continue_run(
        job.project_id,
        run.pk,
        completer=GatewayCompleter(job.project_id, str(checkpoint), source="eval"),
        concurrency=at_once,
        deadline=time.monotonic() + (LONG_SLICE_S if is_long else SLICE_S),
        on_progress=lambda done, total: job.renew(),
    )


def _pace(job: ClaimedJob, run: EvalRun) -> None:
    """After a slice: fewer at once where answers take long; a run without an end in sight fails."""
    assert job.project_id is not None
    at_once = _at_once(job, run)
    with tenant(job.project_id):
        num_answers = counts_of(run).num_answers
        num_done = num_answers - job.payload.get(ANSWERS, 0)
        idle = 0 if num_done or at_once > 1 else job.payload.get(IDLE_SLICES, 0) + 1
        if idle >= MOST_IDLE:
            _fail(run.pk, f"not one answer was whole after {LONG_SLICE_S:.0f} s; give answers fewer tokens, or seconds")
        most = _most_at_once(run)
        changes = {
            AT_ONCE: next_at_once(at_once, num_done=num_done, most=most),
            ANSWERS: num_answers,
            IDLE_SLICES: idle,
        }
        _note(job, job.payload | changes)


def _at_once(job: ClaimedJob, run: EvalRun) -> int:
    return min(_most_at_once(run), job.payload.get(AT_ONCE, CONCURRENCY))


def _most_at_once(run: EvalRun) -> int:
    return CONCURRENCY if run.seconds_per_answer is None else TIMED_CONCURRENCY


def _ask_again(job: ClaimedJob, run: EvalRun) -> None:
    """An engine that starts anew fails what is asked meanwhile: that is nobody's answer."""
    assert job.project_id is not None
    tries = job.payload.get("tries", 0)
    if tries == len(AGAIN_AFTER_S):
        return
    with tenant(job.project_id):
        num_again = ask_again(run)
        if num_again:
            _note(job, job.payload | {"tries": tries + 1})
    if num_again:
        raise NotYet(AGAIN_AFTER_S[tries], f"{num_again} answers could not be had and are asked for again")


def on_job_quarantined(job: Job) -> None:
    """A run whose job was given up is over; going on with it makes a new job."""
    if job.kind == RUN_JOB and job.project_id is not None:
        with tenant(job.project_id):
            last_line = job.last_error.strip().rsplit("\n", 1)[-1]
            _fail(UUID(job.payload["run"]), f"given up after several tries: {last_line}")


def work_on(run: EvalRun) -> Job | None:
    """The job that has to do with it: the newest that is not done."""
    if run.state != EvalState.RUNNING or not run.asked_by:
        return None
    jobs = Job.objects.filter(project_id=run.project_id, kind=RUN_JOB, payload__run=str(run.id))
    return jobs.exclude(state="done").order_by("-id").first()


def _check_asked(run: EvalRun) -> None:
    if not run.asked_by:
        raise Conflict("nobody asked for this run here: it is the gate's, or it came from elsewhere")


def _check(wanted: Wanted) -> None:
    """Raises InvalidInput naming the field."""
    ranges: dict[str, tuple[float, float]] = {
        "samples": (1, MAX_SAMPLES), "temperature": (0, 2), "top_p": (1e-6, 1), "max_tokens": (1, MAX_TOKENS),
        "seed": (0, 2**63 - 1), "limit": (1, 10_000_000), "seconds": (0.001, MOST_SECONDS),
    }  # fmt: skip
    for name, (low, high) in ranges.items():
        value = getattr(wanted, name)
        if value is not None and not low <= value <= high:
            raise InvalidInput(f"found {value:g}; give {low:g} to {high:g}", field=name)
    if wanted.samples > 1 and wanted.temperature == 0:
        raise InvalidInput("at temperature 0 every sample is the same; give a temperature above 0", field="temperature")
    if wanted.scorer not in SCORERS:
        raise InvalidInput(f"no scorer {wanted.scorer[:40]!r}; there are {', '.join(SCORERS)}", field="scorer")
    if wanted.stop is not None and (len(wanted.stop) > 4 or not all(wanted.stop)):
        raise InvalidInput("give at most 4 stop sequences, none of them empty", field="stop")


def _have_tests(problems: "QuerySet[Problem]") -> bool:
    return problems.filter(tests__isnull=False).exclude(tests={}).exclude(tests=[]).exists()


def _sampling(benchmark: Benchmark, wanted: Wanted) -> dict[str, Any]:
    """As the gateway takes it, written so that equal settings are equal JSON."""
    given = {"temperature": wanted.temperature, "max_tokens": wanted.max_tokens, "stop": wanted.stop}
    sampling = {"max_tokens": 512, **benchmark.sampling} | {name: one for name, one in given.items() if one is not None}
    if wanted.top_p != 1:
        sampling["top_p"] = wanted.top_p
    sampling["stop"] = list(sampling.get("stop") or ())
    if not sampling["stop"]:
        del sampling["stop"]
    whole = {name: int(one) for name, one in sampling.items() if isinstance(one, float) and one.is_integer()}
    return sampling | whole


def _refusal(job: ClaimedJob, checkpoint: Checkpoint) -> str | None:
    """Why it cannot be asked."""
    if checkpoint.files_deleted_at is not None:
        return f"the files of {checkpoint} are deleted: {checkpoint.files_deleted_reason}"
    if time.time() - job.payload.get(WAITING_SINCE, time.time()) > PATIENCE_S and not is_held(checkpoint):
        error = load_error(checkpoint)
        return f"no engine held it within {PATIENCE_S / 60:.0f} minutes" + (f": {error}" if error else "")
    return None


def _note_wait(job: ClaimedJob, *, is_waiting: bool) -> None:
    """Keep with the job when its wait for an engine began."""
    payload = {name: value for name, value in job.payload.items() if name != WAITING_SINCE}
    _note(job, payload | ({WAITING_SINCE: time.time()} if is_waiting else {}))


def _note(job: ClaimedJob, payload: dict[str, Any]) -> None:
    """Keep with the job what its next turn has to know."""
    Job.objects.filter(pk=job.id, fence=job.fence).update(payload=payload)
    job.payload = payload


def _fail(run_id: UUID, why: str) -> None:
    EvalRun.objects.filter(pk=run_id, state=EvalState.RUNNING).update(
        state=EvalState.FAILED, error=why[:4000], finished_at=timezone.now()
    )


def _enqueue(run: EvalRun) -> None:
    enqueue(RUN_JOB, project_id=run.project_id, payload={"run": str(run.id)}, key=str(run.id))
