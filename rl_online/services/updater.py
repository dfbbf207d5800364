"""One claimed update from claim to candidate: rows, lease and progress around a training that knows none of them.

The training itself is handed in as a function, so this stays free of torch. Killed at any moment, the same run is done
again by whoever claims it next, to the same bits and to one checkpoint.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection

from jobs import crash
from jobs.services import MAX_ATTEMPTS, ClaimedJob, NotYet, StaleFence
from registry.tenancy import tenant
from rl_online.models import UpdateState
from rl_online.services import runs
from rl_online.services.runs import Order, StepRow

RENEWALS_PER_LEASE = 4
FLUSH_EVERY_S = 1.0

log = logging.getLogger(__name__)


class Cancelled(Exception):
    """The training was asked to stop and has written no checkpoint."""


class Hopeless(Exception):
    """The training cannot come to anything, however often it is tried; the message says why."""


class Diverged(Hopeless):
    """Nor should anything be learnt from its batch again: it led the policy away from all it knew."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a finished training left in the order's folder."""

    tree_digest: str
    num_bytes: int
    optimizer_step: int
    timings: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Made:
    """What a finished training of a kind without a checkpoint left."""

    result: Mapping[str, Any]  # what its stage registers, see `Stage.register`
    timings: Mapping[str, float]


Train = Callable[[Order, Callable[[StepRow], None], Callable[[], bool]], Trained | Made]


def update(job: ClaimedJob, train: Train, *, stopping: threading.Event, beat: Callable[[], None]) -> None:
    """Handle one `rl_online.update` job; `beat` is called now and then, as a sign of life."""
    assert job.project_id is not None
    run_id = UUID(job.payload["run"])
    job.renew()
    with tenant(job.project_id):
        order = runs.begin(run_id)
    if order is None:
        return
    reporter = Reporter(job, run_id, stopping, beat)
    reporter.start()
    trained: Trained | Made | None = None
    failure: str | None = None
    is_poisoned = False
    try:
        trained = train(order, reporter.add, reporter.should_stop.is_set)
    except Cancelled:
        pass
    except Hopeless as error:
        failure, is_poisoned = str(error), isinstance(error, Diverged)
    except Exception as error:
        if job.attempts < MAX_ATTEMPTS:
            raise
        log.exception("update %s failed for the last time", run_id)
        failure = f"{type(error).__name__}: {error}"
    finally:
        reporter.finish()
    if trained is None and failure is None and reporter.lost:
        raise StaleFence(f"job {job.id} ({job.kind}) is no longer ours")
    if trained is None and failure is None and stopping.is_set():
        raise NotYet(0, "the updater was stopped")
    crash.point("update.before_row")
    with job.effect(), tenant(job.project_id):
        if isinstance(trained, Made):
            runs.complete(run_id, result=trained.result, timings=trained.timings)
        elif trained is not None:
            runs.finish(
                run_id,
                tree_digest=trained.tree_digest,
                num_bytes=trained.num_bytes,
                optimizer_step=trained.optimizer_step,
                timings=trained.timings,
            )
        else:
            state = UpdateState.FAILED if failure else UpdateState.CANCELLED
            runs.end(run_id, state, error=failure or "", keeps_turns=is_poisoned)


class Reporter(threading.Thread):
    """Writes finished steps and renews the lease, about once a second, on a connection of its own."""

    def __init__(self, job: ClaimedJob, run_id: UUID, stopping: threading.Event, beat: Callable[[], None]) -> None:
        super().__init__(name="reporter", daemon=True)
        self.should_stop = threading.Event()
        self.lost = False  # another updater has taken the run over
        self._job = job
        self._run_id = run_id
        self._stopping = stopping
        self._beat = beat
        self._steps: queue.SimpleQueue[StepRow] = queue.SimpleQueue()
        self._unwritten: list[StepRow] = []
        self._done = threading.Event()
        self._renewed_at = time.monotonic()

    def add(self, step: StepRow) -> None:
        self._steps.put(step)

    def run(self) -> None:
        try:
            while not self._done.wait(min(FLUSH_EVERY_S, settings.JOB_LEASE_S / RENEWALS_PER_LEASE)):
                self._tick()
            self._tick()
        finally:
            connection.close()

    def finish(self) -> None:
        """Write what is left and end the thread."""
        self._done.set()
        self.join()

    def _tick(self) -> None:
        while not self._steps.empty():
            self._unwritten.append(self._steps.get())
        try:
            self._beat()
            if self._write():
                self.should_stop.set()
        except StaleFence:
            self.lost = True
            self.should_stop.set()
        except (OperationalError, InterfaceError) as error:
            log.warning("progress will be written later: %s", error)
            connection.close()
        if self._stopping.is_set():
            self.should_stop.set()

    def _write(self) -> bool:
        """True when the run is to stop."""
        assert self._job.project_id is not None
        if time.monotonic() - self._renewed_at >= settings.JOB_LEASE_S / RENEWALS_PER_LEASE:
            self._job.renew()
            self._renewed_at = time.monotonic()
        with tenant(self._job.project_id):
            is_over = runs.record_steps(self._run_id, self._unwritten)
        self._unwritten.clear()
        return is_over
