"""A real engine process on the socket that the gateway asks."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings


@contextmanager
def running_engine(name: str) -> Iterator[Path]:
    """It holds nothing; yields its socket."""
    socket = settings.HOME.engine_socket
    socket.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "rl_online.commands.engine", "--socket", str(socket), "--name", name]
    engine = subprocess.Popen(
        [*command, "--device", "cpu", "--threads", "1"], env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    try:
        deadline = time.monotonic() + 90
        while not socket.exists():
            assert engine.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        yield socket
    finally:
        engine.terminate()
        engine.wait(30)
        socket.unlink(missing_ok=True)
