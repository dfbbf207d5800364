"""A warm, small Python process that forks one pair of confined processes per run: `python -I -S`, no torch, no
site-packages.

For every request on its control socket, which brings along one end of a socket of the host, it forks the answer's
process and the examiner's, watches both until the examiner is done or the deadline has passed, kills whatever is left
of either tree and reports how they ended. It never reads code or tests itself, so a fork inherits nothing of earlier
runs.
"""

import contextlib
import gc
import json
import os
import random
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from typing import Any

from evals.scorers.sandbox import answer, examiner
from evals.scorers.sandbox.confinement import (
    READABLE,
    Kernel,
    Limits,
    adopt_orphans,
    confine,
    drop_identity,
    hide_from_ptrace,
    landlock_ruleset,
    probe,
    works,
)
from evals.scorers.sandbox.wire import send

# Loaded once here: an import in an answer is then a look-up, also where nobody may read the standard library.
WARM = (
    "abc", "array", "ast", "base64", "binascii", "bisect", "calendar", "cmath", "collections", "collections.abc",
    "colorsys", "contextlib", "copy", "csv", "dataclasses", "datetime", "decimal", "difflib", "enum", "errno",
    "fractions", "functools", "graphlib", "hashlib", "heapq", "hmac", "html", "inspect", "io", "ipaddress",
    "itertools", "json", "keyword", "locale", "math", "numbers", "operator", "os.path", "pathlib", "pprint",
    "queue", "random", "re", "reprlib", "secrets", "shlex", "statistics", "string", "struct", "sys", "tempfile",
    "textwrap", "threading", "time", "timeit", "traceback", "types", "typing", "unicodedata", "urllib.parse",
    "uuid", "warnings", "weakref", "zlib", "zoneinfo",
)  # fmt: skip
SETUP_FAILED = 97  # exit status of a child that could not be confined


def main(control: socket.socket, *, wanted: str) -> None:
    """Say hello with the level reached, then serve requests until the host is gone."""
    for name in WARM:
        with contextlib.suppress(ImportError):
            __import__(name)
    adopt_orphans()
    hide_from_ptrace()
    kernel = probe()
    level = _level(kernel, wanted)
    has_landlock, has_seccomp = "landlock" in level, kernel.seccomp and level != "none"
    folder = tempfile.mkdtemp(prefix="strop-sandbox-")
    try:
        os.chmod(folder, 0o555)
        os.chdir(folder)
        readable = [*READABLE, *sys.path, folder]
        ruleset = landlock_ruleset(kernel.landlock_abi, readable=readable) if has_landlock else None
        nobody = level != "none" and os.getuid() == 0 and works(drop_identity)
        zygote = Zygote(control, ruleset=ruleset, seccomp=has_seccomp, nobody=nobody)
        gc.collect()
        gc.freeze()
        send(control, {"level": level, "has_seccomp": has_seccomp, "pid": os.getpid()})
        zygote.serve()
    finally:
        os.rmdir(folder)


def _level(kernel: Kernel, wanted: str) -> str:
    """The level this process provides: what was wanted, or the best there is."""
    if wanted in ("none", "bwrap") or not kernel.seccomp:
        return wanted if wanted == "bwrap" else "none"
    return "zygote+landlock+seccomp" if kernel.landlock_abi and wanted != "zygote+seccomp" else "zygote+seccomp"


class Zygote:
    """The fork server. One run at a time: a host that wants more starts more of us."""

    def __init__(self, control: socket.socket, *, ruleset: int | None, seccomp: bool, nobody: bool) -> None:
        self._control = control
        self._ruleset = ruleset
        self._seccomp = seccomp
        self._nobody = nobody
        self._stdin = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def serve(self) -> None:
        while True:
            request, descriptors, _, _ = socket.recv_fds(self._control, 4096, 1)
            if not request:
                return
            limits = Limits(**json.loads(request))
            with socket.socket(fileno=descriptors[0]) as host:
                report = self.run(host, limits)
            send(self._control, report)

    def run(self, host: socket.socket, limits: Limits) -> dict[str, Any]:
        """Fork, watch, kill, report; `host` is closed here as soon as the examiner has it."""
        started = time.monotonic()
        answer_end, examiner_end = socket.socketpair()
        output, output_end = os.pipe()
        try:
            answer_pid = self._fork(lambda: answer.serve(answer_end), limits, keep=answer_end, output=output_end)
            examiner_pid = self._fork(
                lambda: examiner.examine(host, examiner.Answer(examiner_end, answer_pid)),
                limits,
                keep=host,
                also=examiner_end,
            )
        finally:
            for end in (answer_end, examiner_end, host):
                end.close()
            os.close(output_end)
        try:
            watched = self._watch(examiner_pid, output, deadline=started + limits.wall_s, keep=limits.output_bytes)
        finally:
            os.close(output)
        ended = _end((answer_pid, examiner_pid))
        return {
            "timed_out": watched.timed_out,
            "output": watched.output.decode(errors="replace"),
            "answer_status": ended[answer_pid].status,
            "examiner_status": ended[examiner_pid].status,
            "wall_ms": 1000 * (time.monotonic() - started),
            "cpu_ms": ended[answer_pid].cpu_ms,
            "peak_bytes": ended[answer_pid].peak_bytes,
        }

    def _fork(
        self,
        body: Any,
        limits: Limits,
        *,
        keep: socket.socket,
        also: socket.socket | None = None,
        output: int | None = None,
    ) -> int:
        """A confined child that runs `body` with nothing open but its sockets and its output."""
        pid = os.fork()
        if pid:
            return pid
        status = SETUP_FAILED
        try:
            os.setsid()
            for signum in (signal.SIGINT, signal.SIGTERM):
                signal.signal(signum, signal.SIG_DFL)
            os.dup2(self._stdin, 0)
            for stream in (1, 2):
                os.dup2(output if output is not None else os.open(os.devnull, os.O_WRONLY), stream)
            wanted = {keep.fileno(), *([also.fileno()] if also else []), *([self._ruleset] if self._ruleset else [])}
            _close_all_but(wanted)
            random.seed(0)
            confine(limits, ruleset=self._ruleset, seccomp=self._seccomp, nobody=self._nobody)
            body()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def _watch(self, examiner_pid: int, output: int, *, deadline: float, keep: int) -> "_Watched":
        """Until the examiner ends or time is up; drains the answer's output so that it never blocks on us."""
        pidfd, kept = os.pidfd_open(examiner_pid), bytearray()
        poll = select.poll()
        for descriptor in (pidfd, output, self._control.fileno()):
            poll.register(descriptor, select.POLLIN)
        try:
            while (left := deadline - time.monotonic()) > 0:
                ready = {descriptor for descriptor, _ in poll.poll(1000 * left + 1)}
                if pidfd in ready:
                    return _Watched(timed_out=False, output=bytes(kept))
                if self._control.fileno() in ready:  # the host never speaks during a run: it is gone
                    return _Watched(timed_out=True, output=b"")
                if output in ready:
                    part = os.read(output, 1 << 16)
                    kept += part[: keep - len(kept)]
                    if not part:
                        poll.unregister(output)
            return _Watched(timed_out=True, output=bytes(kept))
        finally:
            os.close(pidfd)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Watched:
    timed_out: bool
    output: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ended:
    status: int  # negative: the signal it died of
    cpu_ms: float
    peak_bytes: int  # of resident memory


def _end(pids: tuple[int, int]) -> dict[int, _Ended]:
    """Kill both trees and reap every child, adopted ones included; how each ended.

    An examiner that is done may still be in exit, and an answer in its last words: the kill makes no difference to
    either, since the verdict is already with the host.
    """
    ended: dict[int, _Ended] = {}
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while True:
        try:
            pid, status, used = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid:
            cpu_ms = 1000 * (used.ru_utime + used.ru_stime)
            ended[pid] = _Ended(
                status=os.waitstatus_to_exitcode(status), cpu_ms=cpu_ms, peak_bytes=used.ru_maxrss << 10
            )
            continue
        for child in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and _parent(name) == os.getpid()]


def _parent(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _close_all_but(wanted: set[int]) -> None:
    first = 3
    for descriptor in sorted(wanted):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, 1 << 16)
