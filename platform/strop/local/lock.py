"""One supervisor per home: a lock that dies with its holder, and a file that says what runs."""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from strop.home import Home
from strop.local.account import make_private_folder

CLEANING_S = 15.0  # after its supervisor was killed, the guard holds the lock while it ends what is left


class AlreadyRunning(RuntimeError):
    """Another supervisor holds this home."""


@contextmanager
def locked(home: Home) -> Iterator[int]:
    """Hold the home; yields the lock's descriptor, for the guard to hold too. Raises AlreadyRunning."""
    make_private_folder(home.run, None)
    descriptor = os.open(home.run / "up.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _acquire(descriptor, home)
        yield descriptor
    finally:
        os.close(descriptor)


def is_locked(home: Home) -> bool:
    try:
        descriptor = os.open(home.run / "up.lock", os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


def write_state(home: Home, state: Mapping[str, Any]) -> None:
    new = home.run / "state.json.new"
    new.write_text(json.dumps(state, indent=1))
    new.rename(home.run / "state.json")


def read_state(home: Home) -> dict[str, Any]:
    """What the last supervisor of this home wrote; {} before the first. Only true while `is_locked`."""
    try:
        return json.loads((home.run / "state.json").read_text())
    except FileNotFoundError:
        return {}


def running_settings(home: Home) -> dict[str, str]:
    """Environment that the running supervisor of this home told its commands; {} when none runs."""
    return read_state(home).get("settings", {}) if is_locked(home) else {}


def _acquire(descriptor: int, home: Home) -> None:
    deadline = time.monotonic() + CLEANING_S
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            state = read_state(home)
            if _is_alive(state.get("pid")) or time.monotonic() > deadline:
                where = f", pid {state['pid']}, at {state['url']}" if state else ""
                raise AlreadyRunning(f"Strop is already running on {home.root}{where}") from None
            time.sleep(0.05)


def _is_alive(pid: int | None) -> bool:
    return pid is not None and os.path.exists(f"/proc/{pid}")
