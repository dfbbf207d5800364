"""One supervised program: how it is started, known to be ready and stopped. When we are killed, it dies too."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from strop.local.account import Account

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
HEALTH_EVERY_S = 10.0
HEALTH_FAILURES = 6


def _always() -> bool:
    return True


def _nothing() -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class Service:
    name: str
    command: Sequence[str | Path]
    environment: Mapping[str, str] = field(default_factory=dict)  # added to our own
    account: Account | None = None  # None: runs as ourselves
    stop_signal: signal.Signals = signal.SIGTERM
    stop_s: float = 15.0  # patience after the stop signal, then SIGKILL to the whole group
    ready_s: float = 60.0  # patience until is_ready
    prepare: Callable[[], None] = _nothing  # before each start: folders made, what a kill left cleared
    is_ready: Callable[[], bool] = _always
    is_healthy: Callable[[], bool] | None = None  # asked every ten seconds; six times no restarts it
    stop_rank: int = 0  # higher stops first; equal ranks stop together
    folder: Path = Path("/")


def start(
    service: Service, *, output: int | None = None, errors: int | None = None, extra: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start `service` in a session of its own; it is killed when the calling thread's process dies.

    `output` takes its standard output, and its errors too unless `errors` is given; None leaves it as ours.
    """
    service.prepare()
    who = service.account
    return subprocess.Popen(
        [str(part) for part in service.command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if errors is None and output is not None else errors,
        cwd=service.folder,
        env={**os.environ, **service.environment, **(extra or {})},
        start_new_session=True,
        user=None if who is None else who.uid,
        group=None if who is None else who.gid,
        extra_groups=None if who is None else [],
        preexec_fn=_die_with(os.getpid()),
    )


def stop(process: subprocess.Popen[bytes], service: Service) -> int:
    """Ask, wait, then kill; returns the exit status. Nothing of the process group is left afterwards."""
    if process.poll() is None:
        process.send_signal(service.stop_signal)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(service.stop_s)
    kill_group(process.pid)
    return process.wait()


def kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def wait_ready(process: subprocess.Popen[bytes], service: Service) -> None:
    """Block until `service` is ready; raises when it ends or takes too long."""
    deadline = time.monotonic() + service.ready_s
    while not service.is_ready():
        if process.poll() is not None:
            raise RuntimeError(f"{service.name} ended with status {process.returncode} before it was ready")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{service.name} was not ready after {service.ready_s:.0f} s")
        time.sleep(0.02)


def _die_with(parent: int) -> Callable[[], None]:
    def arm() -> None:
        # Set after the change of user, which clears it. The parent may already be gone by now.
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return arm
