"""The guard: a small process that outlives a killed supervisor just long enough to end what the supervisor had started.

It reads `+<process group>` and `-<process group>` lines from its standard input. When that closes, it kills the groups
still listed, and every process that carries the run's mark in its environment (children that made sessions of their
own). Direct children die with the supervisor by the kernel's hand; this is for their children.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from strop.local.service import kill_group

MARK = "STROP_RUN"
PATIENCE_S = 10.0


class Guard:
    """The supervisor's end of it."""

    def __init__(self, *, mark: str, keep_open: int) -> None:
        """`keep_open`: the descriptor of the home's lock, so that the home is not free before it is clean."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "strop.local.guard", mark],
            stdin=subprocess.PIPE,
            pass_fds=[keep_open],
            start_new_session=True,
            cwd="/",
        )

    def watch(self, group: int) -> None:
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        self._tell(f"-{group}\n")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()


def marked(mark: str) -> list[int]:
    """Pids of living processes whose environment holds `STROP_RUN=<mark>`."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        groups.add(group) if line[0] == "+" else groups.discard(group)
    for group in groups:
        kill_group(group)
    deadline = time.monotonic() + PATIENCE_S
    while (left := marked(sys.argv[1])) and time.monotonic() < deadline:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)


if __name__ == "__main__":
    main()
