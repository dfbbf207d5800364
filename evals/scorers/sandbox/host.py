"""Our side of the sandbox: start a zygote, send it runs, and say what came of each.

    tests = {"function": "add", "cases": [{"args": [1], "expected": 3}]}
    Sandbox().run("def add(a):\n    return a + 2", tests).outcome   # "ok"

The verdict comes over a socket that the answer's process has never held, with a nonce that only the host and the
examiner know. A fault of the sandbox itself is an outcome of its own and never the answer's failure; a zygote that
died is replaced.
"""

import atexit
import contextlib
import json
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from evals.scorers.sandbox.confinement import Limits
from evals.scorers.sandbox.wire import BadFrame, receive, send

LEVELS = ("none", "zygote+seccomp", "bwrap", "zygote+landlock+seccomp")  # weakest first
START_S = 20.0  # a zygote that has not said hello by then is a fault
SLACK_S = 5.0  # how long after the deadline the zygote may take to kill and report

_ROOT = Path(__file__).resolve().parents[3]
_BOOT = (
    "import sys, socket; sys.path.append(sys.argv[1]);"
    "from evals.scorers.sandbox import zygote; sys.path.pop();"
    "zygote.main(socket.socket(fileno=int(sys.argv[2])), wanted=sys.argv[3])"
)


class SandboxUnavailable(RuntimeError):
    """This machine cannot confine code, and running it unconfined was not allowed."""


class KilledByAnswer(RuntimeError):
    """The zygote died under an answer that was in a position to kill it."""


class Outcome(StrEnum):
    """How a run ended. All but the last two are the answer's own doing and count."""

    OK = "ok"
    WRONG = "wrong"
    CRASH = "crash"
    TIMEOUT = "timeout"
    OOM = "oom"
    UNSUPPORTED = "unsupported"  # the tests ask what the sandbox cannot do; unscored
    SANDBOX_FAULT = "sandbox_fault"  # our failure; masked, retried, never a 0

    @property
    def is_scored(self) -> bool:
        return self not in (Outcome.UNSUPPORTED, Outcome.SANDBOX_FAULT)


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One measured call."""

    size: int
    cpu_s: float  # of the answer's process, from arguments that are there to a result that can be sent
    around_cpu_s: float  # of the same process for the trips of both
    digest: str  # equal for equal results


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """What one run came to."""

    outcome: Outcome
    detail: str  # in words, e.g. the first failing case
    level: str  # one of LEVELS
    results: str = ""  # "1" or "0" for each case; empty when none was asked or it never got to say
    wall_ms: float = 0.0
    cpu_ms: float = 0.0  # of the answer's process alone
    peak_bytes: int = 0  # its resident memory at most, with the interpreter's
    load_cpu_s: float = 0.0  # of a measurement: until it was loaded
    calls: tuple[Call, ...] = ()  # of a measurement
    output: str = ""  # the first bytes the answer printed

    @property
    def passed(self) -> int:
        return self.results.count("1")

    @property
    def total(self) -> int:
        return len(self.results)


def failed(outcome: Outcome, detail: str, *, level: str, wall_ms: float = 0.0) -> Execution:
    """An execution of which nothing came."""
    return Execution(outcome=outcome, detail=detail, level=level, wall_ms=wall_ms)


class Sandbox:
    """One zygote, one run at a time; safe to call from several threads, which then take turns.

    `level` forces a level instead of the best this machine offers. The lowest, "none", confines nothing but resources
    and is refused unless `allow_none`.
    """

    def __init__(self, *, level: str | None = None, allow_none: bool = False) -> None:
        self._wanted = level or ""
        self._allow_none = allow_none
        self._turn = threading.Lock()
        self._zygote: _Zygote | None = None
        self._owner_pid = os.getpid()

    @property
    def level(self) -> str:
        """The level runs get here; starts the zygote. Raises SandboxUnavailable."""
        with self._turn:
            return self._ready_zygote().level

    def run(self, code: str, tests: dict[str, Any] | None, *, limits: Limits | None = None) -> Execution:
        """Load `code` and put `tests` to it (None: only load it). Faults are returned; SandboxUnavailable is raised."""
        limits = limits or Limits()
        started = time.monotonic()
        with self._turn:
            try:
                return self._ready_zygote().run(code, tests, limits)
            except KilledByAnswer as error:
                outcome, detail = Outcome.CRASH, str(error)
            except (OSError, BadFrame) as error:
                outcome, detail = Outcome.SANDBOX_FAULT, f"{type(error).__name__}: {error}"
            level = self._zygote.level if self._zygote is not None else ""
            self._drop_zygote()
        return failed(outcome, detail, level=level, wall_ms=1000 * (time.monotonic() - started))

    def close(self) -> None:
        """End the zygote and everything under it."""
        with self._turn:
            self._drop_zygote()

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ready_zygote(self) -> "_Zygote":
        if self._owner_pid != os.getpid():  # we were forked: that zygote is our parent's
            self._zygote, self._owner_pid = None, os.getpid()
        if self._zygote is None:
            self._zygote = _best_zygote(self._wanted, allow_none=self._allow_none)
        return self._zygote

    def _drop_zygote(self) -> None:
        if self._zygote is not None and self._owner_pid == os.getpid():
            self._zygote.kill()
        self._zygote = None


@cache
def default_sandbox(*, allow_none: bool = False) -> Sandbox:
    """The sandbox of this process; its zygote starts with the first run and ends with the process."""
    sandbox = Sandbox(allow_none=allow_none)
    atexit.register(sandbox.close)
    return sandbox


def _best_zygote(wanted: str, *, allow_none: bool) -> "_Zygote":
    zygote = _Zygote(wanted)
    if wanted == LEVELS[-1] and LEVELS.index(zygote.level) < LEVELS.index("bwrap") and shutil.which("bwrap"):
        # Without Landlock an answer could read what our own user may read.
        with contextlib.suppress(SandboxUnavailable):
            stronger = _Zygote("bwrap")
            zygote.kill()
            zygote = stronger
    if zygote.level == "none" and not allow_none:
        zygote.kill()
        raise SandboxUnavailable(
            "this kernel offers neither seccomp nor bubblewrap, so answers would run unconfined; install bubblewrap, "
            "or set STROP_SANDBOX_ALLOW_NONE=1 on a machine that holds nothing of value"
        )
    return zygote


class _Zygote:
    """A running zygote process and its control socket."""

    def __init__(self, wanted: str) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                _command(theirs.fileno(), wanted),
                env={},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        try:
            self._control.settimeout(START_S)
            hello = receive(self._control)
            if hello is None:
                raise SandboxUnavailable("the sandbox's zygote ended before it was ready; its error is on stderr")
        except (OSError, BadFrame, SandboxUnavailable):
            self.kill()
            raise
        self.level: str = hello["level"]
        self.pid: int = hello["pid"]
        self._has_seccomp: bool = hello["has_seccomp"]

    def run(self, code: str, tests: dict[str, Any] | None, limits: Limits) -> Execution:
        nonce, ours, theirs = secrets.token_hex(16), *socket.socketpair()
        with ours:
            deadline = limits.wall_s + SLACK_S
            ours.settimeout(deadline)
            self._control.settimeout(deadline)
            with theirs:
                socket.send_fds(self._control, [json.dumps(asdict(limits)).encode()], [theirs.fileno()])
            send_quietly(ours, {"nonce": nonce, "code": code, "tests": tests})
            report = receive(self._control)
            said = _said(ours, nonce)
            if report is None and said and not self._has_seccomp:
                # Only seccomp keeps an answer from signalling us; without it, a fault must not be a way out.
                raise KilledByAnswer("the sandbox died while the answer ran, at a level where an answer can do that")
            if report is None:
                raise OSError("the zygote died")
        return _execution(said, report, level=self.level)

    def kill(self) -> None:
        """The zygote's children die with it (PR_SET_PDEATHSIG), or with their session when it was unconfined."""
        self._control.close()
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


def send_quietly(channel: socket.socket, message: dict[str, Any]) -> None:
    """Send to an examiner that may already be gone; its missing verdict says so later."""
    try:
        send(channel, message)
    except (BrokenPipeError, ConnectionResetError):
        return


def _said(channel: socket.socket, nonce: str) -> list[dict[str, Any]]:
    """Every frame of this run's examiner. It is dead by now, so what it wrote is all there."""
    frames = []
    while select.select([channel], [], [], 0)[0] and (frame := receive(channel)) is not None:
        if not secrets.compare_digest(str(frame.get("nonce")), nonce):
            raise BadFrame("a verdict without this run's nonce")
        frames.append(frame)
    return frames


def _execution(said: list[dict[str, Any]], report: dict[str, Any], *, level: str) -> Execution:
    outcome, detail = _outcome(said, report)
    verdict = said[1] if len(said) == 2 else {}
    return Execution(
        outcome=outcome,
        detail=detail,
        level=level,
        results=verdict.get("results", ""),
        wall_ms=report["wall_ms"],
        cpu_ms=report["cpu_ms"],
        peak_bytes=report["peak_bytes"],
        load_cpu_s=verdict.get("load_cpu_s", 0.0),
        calls=tuple(Call(**call) for call in verdict.get("calls", ())),
        output=report["output"],
    )


def _outcome(said: list[dict[str, Any]], report: dict[str, Any]) -> tuple[Outcome, str]:
    """Whose doing the end was. An answer may fail in any way it likes, it cannot choose to be masked."""
    if not said:
        return Outcome.SANDBOX_FAULT, f"the answer never started: {report['output'][-300:] or report['answer_status']}"
    if len(said) == 2 and said[1]["outcome"] != "gone":
        return Outcome(said[1]["outcome"]), said[1]["detail"]
    if report["timed_out"]:
        return Outcome.TIMEOUT, "it was still running at the deadline"
    if len(said) == 1 and report["examiner_status"] == -signal.SIGKILL:
        return Outcome.SANDBOX_FAULT, "the examiner was killed"  # by nobody of ours: the machine is out of memory
    if len(said) == 1:
        is_cpu = report["examiner_status"] == -signal.SIGXCPU
        return (Outcome.TIMEOUT if is_cpu else Outcome.CRASH), "the tests could not cope with what it returned"
    if report["answer_status"] == -signal.SIGKILL:
        return Outcome.CRASH, said[1]["detail"]
    status = report["answer_status"]
    if status == -signal.SIGXCPU:
        return Outcome.TIMEOUT, "it used up its CPU time"
    ended = f"exit status {status}" if status >= 0 else signal.Signals(-status).name
    return Outcome.CRASH, f"it ended with {ended} before it answered"


def _command(descriptor: int, wanted: str) -> list[str]:
    python = [sys.executable, "-I", "-S", "-c", _BOOT, str(_ROOT), str(descriptor), wanted]
    return [*_bwrap(), *python] if wanted == "bwrap" else python


def _bwrap() -> list[str]:
    """Everything unshared, nothing visible but the interpreter and this package, read-only.

    The empty /tmp comes before the binds: a checkout may lie below /tmp.
    """
    visible = ["/usr", "/lib", "/lib64", "/bin", sys.base_prefix, sys.prefix, str(_ROOT / "evals")]
    binds = [part for path in visible if os.path.exists(path) for part in ("--ro-bind", path, path)]
    return [
        "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--uid", "65534",
        "--gid", "65534", "--clearenv", "--tmpfs", "/tmp", *binds, "--proc", "/proc", "--dev", "/dev",
    ]  # fmt: skip
