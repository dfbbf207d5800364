"""The one thread that computes: gives the lanes of all checkpoints turns, a step each, and sleeps when none has work.

Everything else talks to it through a locked inbox, so a step never sees its lane change. Not here: what a step does
(serving.decoding), asyncio (serving.embedded).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition, Thread
from time import monotonic

from rl_online.serving.checkpoints import Held
from rl_online.serving.decoding import Counters, Event, Lane, Stream
from rl_online.serving.protocol import (
    EngineBusy,
    EngineUnavailable,
    GenerationFailed,
    UnknownCheckpoint,
)

log = logging.getLogger(__name__)

MIN_RETRY_S, MAX_RETRY_S = 1.0, 30.0
ABORT_S = 2.0  # for the step in progress to end, and with it the aborted streams


@dataclass(frozen=True, slots=True)
class Failure:
    """A stream that ends because the engine failed on it."""

    stream: Stream
    error: GenerationFailed


Deliver = Callable[[list[Event | Failure]], None]  # called on the scheduler's thread, must only hand over


@dataclass(frozen=True, slots=True)
class Load:
    """Gauges of one moment."""

    running: int
    waiting: int
    stalled_s: float


class Scheduler:
    """Owns the lanes. Methods may be called from any thread."""

    def __init__(self, *, max_batch: int, max_waiting: int, deliver: Deliver) -> None:
        self.counters = Counters()
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._deliver = deliver
        self._wake = Condition()
        self._lanes: dict[str, Lane] = {}  # by checkpoint name; a leaving lane stays until it is idle
        self._leaving: set[str] = set()
        self._inbox: list[tuple[Lane, Stream]] = []
        self._streams: dict[str, Stream] = {}  # by request id, from submit to the last final
        self._is_draining = False
        self._is_stopped = False
        self._progress_at = monotonic()
        self._mean_choice_s = 1.0
        self._thread = Thread(target=self._run, name="decode", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def hold(self, held: Held) -> None:
        with self._wake:
            name = str(held.name)
            assert name not in self._lanes, f"{name} is held already"
            self._lanes[name] = Lane(held, max_batch=self._max_batch, counters=self.counters)

    def release(self, checkpoint: str) -> None:
        """The name is unknown to new requests from now on; its streams go on."""
        with self._wake:
            self.find(checkpoint)
            self._leaving.add(checkpoint)
            self._drop_drained()

    def find(self, checkpoint: str) -> Held:
        lane = self._lanes.get(checkpoint)
        if lane is None or checkpoint in self._leaving:
            known = ", ".join(sorted(self._lanes.keys() - self._leaving)) or "nothing yet"
            raise UnknownCheckpoint(f"{checkpoint} is not held; held: {known}", checkpoint=checkpoint)
        return lane.held

    def holds(self, checkpoint: str) -> bool:
        """True also while it is leaving: the name is not free."""
        return checkpoint in self._lanes

    def lanes(self) -> list[tuple[Lane, int, bool]]:
        """Each lane with the number of its choices and whether it is leaving."""
        with self._wake:
            return [
                (lane, self._num_choices(lane), name in self._leaving) for name, lane in sorted(self._lanes.items())
            ]

    def submit(self, stream: Stream) -> None:
        with self._wake:
            if self._is_draining:
                raise EngineUnavailable("the engine is shutting down")
            self.find(stream.request.checkpoint)
            waiting = self._num_waiting()
            if waiting + stream.request.n > self._max_waiting:
                seconds = retry_after_s(waiting, batch=self._max_batch, choice_s=self._mean_choice_s)
                raise EngineBusy(f"{waiting} choices are waiting, {self._max_waiting} may", retry_after_s=seconds)
            if not self._streams:
                self._progress_at = monotonic()
            self._streams[stream.request.id] = stream
            self._inbox.append((self._lanes[stream.request.checkpoint], stream))
            self._wake.notify_all()

    def abort(self, request_id: str) -> bool:
        with self._wake:
            stream = self._streams.get(request_id)
            if stream is None:
                return False
            stream.is_aborted = True
            self._wake.notify_all()
            return True

    def knows(self, request_id: str) -> bool:
        return request_id in self._streams

    def load(self) -> Load:
        with self._wake:
            running = sum(len(lane.running) for lane in self._lanes.values())
            stalled_s = monotonic() - self._progress_at if self._streams else 0.0
            return Load(running, self._num_waiting(), stalled_s)

    @property
    def is_draining(self) -> bool:
        return self._is_draining

    def drain(self, *, timeout_s: float) -> bool:
        """Refuses new streams and waits for those there are, then stops the thread. False: some had to be aborted."""
        with self._wake:
            self._is_draining = True
            is_empty = self._wake.wait_for(lambda: not self._streams, timeout_s)
            for stream in self._streams.values():
                stream.is_aborted = True
            self._wake.notify_all()
            self._wake.wait_for(lambda: not self._streams, ABORT_S)
            self._is_stopped = True
            self._wake.notify_all()
        self._thread.join(ABORT_S)
        return is_empty

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._is_stopped or self._inbox or self._busy_lanes())
                if self._is_stopped:
                    return
                for lane, stream in self._inbox:
                    lane.enqueue(stream)
                self._inbox.clear()
                busy = self._busy_lanes()
            for lane in busy:
                happened = self._step(lane)
                self._settle(happened)
                self._deliver(happened)

    def _step(self, lane: Lane) -> list[Event | Failure]:
        try:
            return list(lane.step())
        except Exception as error:  # one bad batch must not end the thread that serves all others
            log.exception("a step on %s failed", lane.held.name)
            failed = GenerationFailed(f"{type(error).__name__}: {error}")
            failures: list[Event | Failure] = [Failure(stream, failed) for stream in lane.streams()]
            lane.clear()
            return failures

    def _settle(self, happened: list[Event | Failure]) -> None:
        now = monotonic()
        with self._wake:
            self._progress_at = now
            for stream in {id(item.stream): item.stream for item in happened}.values():
                is_failed = any(isinstance(item, Failure) and item.stream is stream for item in happened)
                if is_failed or stream.unfinished == 0:
                    self._streams.pop(stream.request.id, None)
                    self._mean_choice_s += 0.1 * (now - stream.arrived_at - self._mean_choice_s)
            self._drop_drained()
            self._wake.notify_all()

    def _busy_lanes(self) -> list[Lane]:
        return [lane for lane in self._lanes.values() if not lane.is_idle]

    def _drop_drained(self) -> None:
        for name in [name for name in self._leaving if self._num_choices(self._lanes[name]) == 0]:
            self._leaving.remove(name)
            del self._lanes[name]

    def _num_choices(self, lane: Lane) -> int:
        arriving = sum(stream.request.n for target, stream in self._inbox if target is lane)
        return arriving + lane.num_waiting + len(lane.running)

    def _num_waiting(self) -> int:
        arriving = sum(stream.request.n for _, stream in self._inbox)
        return arriving + sum(lane.num_waiting for lane in self._lanes.values())


def retry_after_s(waiting: int, *, batch: int, choice_s: float) -> float:
    """When the queue will have moved on: the time of the batches ahead, within bounds."""
    return min(max(waiting / batch * choice_s, MIN_RETRY_S), MAX_RETRY_S)
