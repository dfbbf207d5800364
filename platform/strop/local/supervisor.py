"""Keeps services running: starts them in order, restarts what ends, collects their output, stops all in reverse order.

One thread and one loop, so that a fork never meets a lock somebody else holds, and children die with this thread's
process. It knows nothing of what the services do.
"""

import math
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import TextIO

from strop.home import Home
from strop.local import lock, service
from strop.local.backoff import Backoff
from strop.local.guard import MARK, Guard
from strop.local.logs import Log
from strop.local.service import Service

KEPT_ERRORS = 4000  # bytes of what a program said last, for the message when it fails
SECOND_SIGNAL_S = 1.0  # `timeout`, make and systemd send the first one twice at once; that is no second wish


class StopAsked(Exception):
    """SIGINT or SIGTERM came; unwinds to whoever stops everything."""


@dataclass
class Life:
    """One service and its present process."""

    service: Service
    log: Log
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0  # monotonic seconds
    started_wall: float = 0.0  # seconds since the epoch
    num_restarts: int = 0
    num_failures: int = 0  # in a row
    restart_at: float | None = None  # monotonic seconds; None while it runs
    health_failures: int = field(default=0)
    checked_at: float = 0.0


class Supervisor:
    def __init__(
        self,
        home: Home,
        *,
        url: str,
        lock_descriptor: int,
        terminal: TextIO = sys.stderr,
        shown: Collection[str] | None = None,
        told: Mapping[str, str] | None = None,
    ) -> None:
        """`terminal`: where output goes besides the log files, of the programs named in `shown`; None means all.

        `told`: environment that the state file keeps for commands on this home; no secrets.
        """
        self.home = home
        self.url = url
        self.backoff = Backoff()
        self.mark = os.urandom(8).hex()
        self._told = dict(told or {})
        self._terminal = terminal
        self._shown = shown
        self._lives: dict[str, Life] = {}
        self._selector = selectors.DefaultSelector()
        self._stop_asked_at: float | None = None  # monotonic seconds
        self._guard = Guard(mark=self.mark, keep_open=lock_descriptor)
        self.log = self._log("strop")
        self._started_wall = time.time()
        self._wake, wake_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._ask_stop)

    def start(self, what: Service) -> None:
        life = self._lives[what.name] = Life(what, self._log(what.name))
        self._launch(life)

    def wait_ready(self, name: str) -> None:
        """Collect output until the service is ready, restarting it when it ends; raises TimeoutError or StopAsked."""
        life = self._lives[name]
        deadline = time.monotonic() + life.service.ready_s
        pause_s = 0.05
        while life.process is None or not life.service.is_ready():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} was not ready after {life.service.ready_s:.0f} s; see {life.log.path}")
            asked_at = time.monotonic()
            while (left_s := asked_at + pause_s - time.monotonic()) > 0:  # its output ends a turn early
                self._turn(left_s)
            pause_s = min(2 * pause_s, 0.5)

    def run_once(self, what: Service) -> bytes:
        """Run a program to its end beside the services; returns its standard output.

        Raises RuntimeError with its last words when it fails: the last line, and the indented ones under it.
        """
        log = self._log(what.name)
        said = bytearray()
        process = service.start(what, output=subprocess.PIPE, errors=subprocess.PIPE)
        self._guard.watch(process.pid)
        output = bytearray()
        assert process.stdout is not None and process.stderr is not None
        self._read(process.stdout.fileno(), output.extend)

        def hear(data: bytes) -> None:
            log.feed(data)
            said.extend(data)
            del said[:-KEPT_ERRORS]

        self._read(process.stderr.fileno(), hear)
        try:
            while process.poll() is None:
                self._turn(0.1)
            self._drain(process)
        finally:
            service.stop(process, what)
            self._guard.forget(process.pid)
            log.close()
        if process.returncode:
            words = _last_words(said.decode(errors="replace"))
            raise RuntimeError(f"{what.name} failed with status {process.returncode}: {words}\nsee {log.path}")
        return bytes(output)

    def run(self) -> None:
        """Until SIGINT or SIGTERM."""
        try:
            while True:
                self._turn(0.5)
        except StopAsked:
            self.log.say("stopping")

    def stop(self) -> None:
        """Stop everything, highest rank first, services of one rank together. A second signal kills at once."""
        ranks = sorted({life.service.stop_rank for life in self._lives.values()}, reverse=True)
        for rank in ranks:
            self._stop_together([life for life in self._lives.values() if life.service.stop_rank == rank])
        self._guard.close()
        self._write_state(is_running=False)
        self.log.say("stopped")
        for life in self._lives.values():
            life.log.close()
        self.log.close()
        signal.set_wakeup_fd(-1)

    def _log(self, name: str) -> Log:
        is_shown = self._shown is None or name in self._shown
        return Log(name, folder=self.home.logs, terminal=self._terminal if is_shown else None)

    def _stop_together(self, lives: Sequence[Life]) -> None:
        asked_at = time.monotonic()
        running = [life for life in lives if life.process is not None and life.process.poll() is None]
        for life in running:
            assert life.process is not None
            life.process.send_signal(life.service.stop_signal)
        deadline = {life.service.name: time.monotonic() + life.service.stop_s for life in running}
        while running:
            self._collect(0.02)
            for life in list(running):
                assert life.process is not None
                if life.process.poll() is not None:
                    running.remove(life)
                    self.log.say(f"{life.service.name} stopped in {time.monotonic() - asked_at:.1f} s")
                elif time.monotonic() > deadline[life.service.name]:
                    self.log.say(f"{life.service.name} did not stop in {life.service.stop_s:.0f} s and is killed")
                    service.kill_group(life.process.pid)
                    deadline[life.service.name] = math.inf
        for life in lives:
            if life.process is not None:
                self._bury(life)

    def _turn(self, timeout_s: float) -> None:
        """Collect output for up to `timeout_s`, then start again what has ended and is due."""
        self._collect(timeout_s)
        if self._stop_asked_at is not None:
            raise StopAsked
        for life in self._lives.values():
            if life.process is not None and life.process.poll() is not None:
                self._notice_end(life)
            if life.restart_at is not None and time.monotonic() >= life.restart_at:
                life.num_restarts += 1
                self._launch(life)
            self._check_health(life)

    def _collect(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            if key.data is None:
                os.read(self._wake, 1024)
                continue
            data = os.read(key.fd, 65536)
            if data:
                key.data(data)
            else:
                self._selector.unregister(key.fd)

    def _read(self, descriptor: int, take: Callable[[bytes], object]) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, take)

    def _launch(self, life: Life) -> None:
        life.restart_at = None
        try:
            process = service.start(life.service, output=subprocess.PIPE, extra={MARK: self.mark})
        except Exception as error:
            life.num_failures += 1
            delay_s = self.backoff.delay_s(life.num_failures)
            self.log.say(f"{life.service.name} cannot start: {error}; trying again in {delay_s:g} s")
            life.restart_at = time.monotonic() + delay_s
            return
        self._guard.watch(process.pid)
        assert process.stdout is not None
        self._read(process.stdout.fileno(), life.log.feed)
        life.process, life.started_at, life.started_wall = process, time.monotonic(), time.time()
        life.health_failures, life.checked_at = 0, time.monotonic()
        self.log.say(f"{life.service.name} started, pid {process.pid}")
        self._write_state()

    def _notice_end(self, life: Life) -> None:
        assert life.process is not None
        status = life.process.returncode
        life.num_failures = self.backoff.failures_after(life.num_failures, ran_s=time.monotonic() - life.started_at)
        delay_s = self.backoff.delay_s(life.num_failures)
        self._bury(life)
        life.restart_at = time.monotonic() + delay_s
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        self.log.say(f"{life.service.name} {how}; starting again in {delay_s:g} s")
        self._write_state()

    def _bury(self, life: Life) -> None:
        """Take the last output of an ended process and end its group."""
        assert life.process is not None
        service.kill_group(life.process.pid)
        life.process.wait()
        self._drain(life.process)
        self._guard.forget(life.process.pid)
        life.process = None

    def _drain(self, process: subprocess.Popen[bytes]) -> None:
        for stream in (process.stdout, process.stderr):
            if stream is None:
                continue
            key = self._selector.get_map().get(stream.fileno())
            os.set_blocking(stream.fileno(), False)
            while key is not None and (data := stream.read(65536)):
                key.data(data)
            if key is not None:
                self._selector.unregister(stream.fileno())
            stream.close()

    def _check_health(self, life: Life) -> None:
        """Restart a service that lives and does not move: six failed checks in a row, ten seconds apart."""
        check = life.service.is_healthy
        if check is None or life.process is None or time.monotonic() - life.checked_at < service.HEALTH_EVERY_S:
            return
        life.checked_at = time.monotonic()
        life.health_failures = 0 if check() else life.health_failures + 1
        if life.health_failures >= service.HEALTH_FAILURES:
            self.log.say(f"{life.service.name} lives but does not move; it is killed and started again")
            service.kill_group(life.process.pid)

    def _write_state(self, *, is_running: bool = True) -> None:
        lock.write_state(
            self.home,
            {
                "pid": os.getpid(),
                "url": self.url,
                "running": is_running,
                "started_at": _rfc3339(self._started_wall),
                "settings": self._told,
                "processes": [
                    {
                        "name": life.service.name,
                        "pid": None if life.process is None else life.process.pid,
                        "started_at": _rfc3339(life.started_wall) if life.started_wall else None,
                        "restarts": life.num_restarts,
                        "log": str(life.log.path),
                    }
                    for life in self._lives.values()
                ],
            },
        )

    def _ask_stop(self, number: int, frame: FrameType | None) -> None:
        if self._stop_asked_at is None:
            self._stop_asked_at = time.monotonic()
        elif time.monotonic() - self._stop_asked_at > SECOND_SIGNAL_S:
            for life in self._lives.values():
                if life.process is not None:
                    service.kill_group(life.process.pid)


def _last_words(said: str) -> str:
    lines = said.rstrip().splitlines() or ["it said nothing"]
    first = max((number for number, line in enumerate(lines) if not line.startswith(" ")), default=0)
    return "\n".join(lines[first:])[:2000]


def _rfc3339(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
