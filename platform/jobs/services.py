"""Durable work: enqueue in the caller's transaction, claim with a lease and a fence, finish exactly once in effect.

PostgreSQL decides; Celery only rings. A lost message delays a job until the sweep, a doubled one finds nothing to
claim. The database's clock times leases, so a host with a wrong clock cannot steal work.
"""

import json
import logging
import os
import socket
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection, transaction
from django.utils import timezone

from jobs import crash, handlers, listeners
from jobs.models import Job, JobState, ProcessBeat, ScheduleSlot

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 5
RETRY_DELAYS_S = (2, 10, 30, 60)  # before attempt 2, 3, 4, 5
KEEP_DONE = timedelta(days=2)


class StaleFence(RuntimeError):
    """Another worker has taken this job over; what this one computed is not written."""


class NotYet(Exception):
    """A handler's way to say: what I wait for is not there; put the job back without counting an attempt."""

    def __init__(self, delay_s: float, reason: str = "") -> None:
        super().__init__(reason)
        self.delay_s = delay_s


@dataclass
class ClaimedJob:
    id: int
    kind: str
    project_id: UUID | None
    payload: dict[str, Any]
    attempts: int
    fence: int
    worker: str
    finished: bool = field(default=False, init=False)

    @property
    def lease_s(self) -> float:
        return handlers.registration(self.kind).lease_s or settings.JOB_LEASE_S

    @contextmanager
    def effect(self) -> Iterator[None]:
        """One transaction for the job's result and its being done; refused as StaleFence when the lease was lost."""
        with transaction.atomic():
            yield
            self._finish()

    def renew(self, lease_s: float | None = None) -> None:
        """Hold the job for another lease; raises StaleFence when it has been taken over."""
        seconds = lease_s or self.lease_s
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE jobs_job SET lease_until = clock_timestamp() + %s * interval '1 second' "
                "WHERE id = %s AND fence = %s AND state = 'running'",
                [seconds, self.id, self.fence],
            )
            if cursor.rowcount != 1:
                raise StaleFence(f"job {self.id} ({self.kind}) is no longer ours")

    def _finish(self) -> None:
        updated = Job.objects.filter(id=self.id, fence=self.fence, state=JobState.RUNNING).update(
            state=JobState.DONE, finished_at=timezone.now(), lease_until=None, last_error=""
        )
        if updated != 1:
            raise StaleFence(f"job {self.id} ({self.kind}) is no longer ours")
        self.finished = True


def worker_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def enqueue(
    kind: str,
    *,
    project_id: UUID | None,
    payload: dict[str, Any] | None = None,
    key: str | None = None,
    run_at: datetime | None = None,
) -> int | None:
    """Write the job in the caller's transaction and ring after its commit.

    With `key`, a job of this kind and key that is still queued stands for this one too, and None is returned; when the
    queued one was due later than `run_at`, it is brought forward.
    """
    queue = handlers.registration(kind).queue
    due = run_at or timezone.now()
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO jobs_job (kind, queue, project_id, payload, key, state, run_at, attempts, fence, worker,
                                  last_error, created_at)
            VALUES (%s, %s, %s, %s, %s, 'queued', %s, 0, 0, '', '', clock_timestamp())
            ON CONFLICT (kind, key) WHERE state = 'queued'
            DO UPDATE SET run_at = least(jobs_job.run_at, excluded.run_at)
            RETURNING id, (xmax = 0)
            """,
            [kind, queue, project_id, _json(payload or {}), key, due],
        )
        job_id, is_new = cursor.fetchone()
    if due <= timezone.now():
        transaction.on_commit(lambda: ring(job_id, queue))
    return job_id if is_new else None


def ring(job_id: int, queue: str) -> None:
    """Tell a Celery worker, best effort: a broker that is away delays the job until the next sweep, no longer."""
    crash.point("outbox.before_publish")
    from jobs.tasks import run  # the task module imports this one

    if queue in CELERY_QUEUES:
        try:
            run.apply_async((job_id,), queue=queue)
        except Exception as error:
            log.warning("could not ring for job %s: %s", job_id, error)


CELERY_QUEUES = ("default", "judge")


def claim(job_id: int, worker: str) -> ClaimedJob | None:
    """The job, if it is due and nobody else holds it."""
    return _claim("id = %s", [job_id], worker)


def claim_next(queues: Sequence[str], worker: str) -> ClaimedJob | None:
    """The longest waiting due job of these queues, or one whose lease has run out."""
    return _claim("queue = ANY(%s)", [list(queues)], worker)


def _claim(condition: str, values: list[Any], worker: str) -> ClaimedJob | None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            f"""
            UPDATE jobs_job SET state = 'running', attempts = attempts + 1, fence = fence + 1, worker = %s,
                                lease_until = clock_timestamp() + interval '30 seconds'
            WHERE id = (SELECT id FROM jobs_job
                        WHERE {condition}
                          AND ((state = 'queued' AND run_at <= clock_timestamp())
                               OR (state = 'running' AND lease_until < clock_timestamp()))
                        ORDER BY run_at LIMIT 1 FOR UPDATE SKIP LOCKED)
            RETURNING id, kind, project_id, payload, attempts, fence, last_error
            """,  # noqa: S608 - `condition` is one of two literals above
            [worker, *values],
        )
        row = cursor.fetchone()
        if row is None:
            return None
        job = ClaimedJob(
            id=row[0],
            kind=row[1],
            project_id=row[2],
            payload=_unjson(row[3]),
            attempts=row[4],
            fence=row[5],
            worker=worker,
        )
        if job.attempts > MAX_ATTEMPTS:
            Job.objects.filter(id=job.id).update(
                state=JobState.QUARANTINED,
                lease_until=None,
                attempts=MAX_ATTEMPTS,
                last_error=row[6] or "the worker died each time it ran this job",
            )
            log.error("job %s (%s) is quarantined after %s attempts", job.id, job.kind, MAX_ATTEMPTS)
            listeners.tell_quarantined(Job.objects.get(id=job.id))
            return None
        job.renew()
        return job


def run(job: ClaimedJob) -> None:
    """Do a claimed job; a failure is written to its row and tried again later, or quarantined at the fifth."""
    try:
        with _held(job):
            handlers.registration(job.kind).handler(job)
            if not job.finished:
                with job.effect():
                    pass
    except StaleFence as error:
        log.warning("%s", error)
    except NotYet as wait:
        _put_back(job, delay_s=wait.delay_s, error=str(wait), is_failure=False)
    except Exception as error:
        log.exception("job %s (%s) failed", job.id, job.kind)
        detail = "".join(traceback.format_exception(error))[-8000:].replace("\0", "\ufffd")  # no text column takes it
        delay_s = RETRY_DELAYS_S[min(job.attempts, len(RETRY_DELAYS_S)) - 1]
        _put_back(job, delay_s=delay_s, error=detail, is_failure=True)


@contextmanager
def _held(job: ClaimedJob) -> Iterator[None]:
    """Renew the lease from a thread while the handler works, so that a lease says who lives, not how long work takes.

    A handler that hangs is Celery's to end (task_time_limit), and the thread ends with it.
    """
    done = threading.Event()

    def renew() -> None:
        try:
            while not done.wait(job.lease_s / 3):
                job.renew()
        except (StaleFence, OperationalError, InterfaceError) as error:
            log.warning("the lease of job %s (%s) is not renewed: %s", job.id, job.kind, error)
        finally:
            connection.close()

    thread = threading.Thread(target=renew, name=f"lease of job {job.id}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _put_back(job: ClaimedJob, *, delay_s: float, error: str, is_failure: bool) -> None:
    is_poison = is_failure and job.attempts >= MAX_ATTEMPTS
    state = JobState.QUARANTINED if is_poison else JobState.QUEUED
    mine = Job.objects.filter(id=job.id, fence=job.fence, state=JobState.RUNNING)
    with transaction.atomic():
        row = mine.select_for_update().first()
        if row is None:
            return
        twin = Job.objects.filter(kind=row.kind, key=row.key, state=JobState.QUEUED) if row.key else Job.objects.none()
        if state is JobState.QUEUED and not is_failure and twin.exists():
            state = JobState.DONE  # a newer job of the same key stands for this one
        elif state is JobState.QUEUED and twin.exists():
            mine.update(key=None)
        mine.update(
            state=state,
            run_at=timezone.now() + timedelta(seconds=delay_s),
            attempts=job.attempts if is_failure else job.attempts - 1,
            lease_until=None,
            last_error=error,
            finished_at=timezone.now() if state is JobState.DONE else None,
        )
        if is_poison:
            listeners.tell_quarantined(Job.objects.get(id=job.id))
        elif state is JobState.QUEUED and delay_s <= 0:
            transaction.on_commit(lambda: ring(row.id, row.queue))  # it is due now: the sweep would come later


def replay(job_id: int) -> bool:
    """Give a quarantined job five new attempts; False when it is not quarantined."""
    updated = Job.objects.filter(id=job_id, state=JobState.QUARANTINED).update(
        state=JobState.QUEUED, attempts=0, run_at=timezone.now()
    )
    return updated == 1


def sweep() -> int:
    """Ring again for every job that is due, or whose holder has gone; returns how many were rung."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, queue FROM jobs_job WHERE (state = 'queued' AND run_at <= clock_timestamp()) "
            "OR (state = 'running' AND lease_until < clock_timestamp()) ORDER BY run_at LIMIT 500"
        )
        due = cursor.fetchall()
    for job_id, queue in due:
        ring(job_id, queue)
    return len(due)


def forget_done() -> None:
    """Drop finished jobs after two days; what they did is kept where they did it."""
    Job.objects.filter(state=JobState.DONE, finished_at__lt=timezone.now() - KEEP_DONE).delete()
    ScheduleSlot.objects.filter(slot__lt=timezone.now() - KEEP_DONE).delete()
    ProcessBeat.objects.filter(seen_at__lt=timezone.now() - KEEP_DONE).delete()


def fire_schedules() -> None:
    """Run every schedule whose current slot has not run yet."""
    now = timezone.now()
    for name, (every_s, function) in handlers.schedules().items():
        slot = datetime.fromtimestamp(now.timestamp() // every_s * every_s, tz=now.tzinfo)
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO jobs_scheduleslot (schedule, slot) VALUES (%s, %s) ON CONFLICT DO NOTHING", [name, slot]
            )
            is_ours = cursor.rowcount == 1
        if is_ours:
            function()


def record_beat(
    name: str,
    kind: str,
    *,
    version: str,
    started_at: datetime | None = None,
    pid: int | None = None,
    detail: dict[str, Any] | None = None,
) -> None:
    """Say that a process lives and what it is doing; our own unless `pid` says whose.

    Without `started_at` it is as old as the first word from this pid.
    """
    pid, now = pid or os.getpid(), timezone.now()
    alive = {"seen_at": now, "detail": detail or {}, "version": version}
    if started_at is None and ProcessBeat.objects.filter(name=name, pid=pid).update(**alive):
        return
    begun = {"kind": kind, "pid": pid, "started_at": started_at or now}
    ProcessBeat.objects.update_or_create(name=name, defaults={**alive, **begun})


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, allow_nan=False)


def _unjson(value: Any) -> dict[str, Any]:
    return json.loads(value) if isinstance(value, str) else value
