"""Signs of life of the processes that have no loop of their own to give them: the worker and beat.

A sweep that runs proves both, so it is the sweep that tells; each worker process at most once in ten seconds.
"""

import os
import re
import socket
import time

from django.conf import settings
from django.db import DatabaseError, connection

from jobs.services import record_beat

EVERY_S = 10.0
ORIGIN = re.compile(r"gen(\d+)@(.+)")  # how Celery names who has sent a message

_told_at = 0.0  # monotonic


def note_sweep(origin: str | None) -> None:
    """`origin`: who rang for this sweep, as Celery gives it; None when nobody did, as in tests."""
    global _told_at
    if time.monotonic() - _told_at < EVERY_S:
        return
    _told_at = time.monotonic()
    host = socket.gethostname()
    record_beat(f"worker@{host}", "worker", pid=os.getppid(), version=settings.CODE_VERSION)
    found = ORIGIN.fullmatch(origin or "")
    if found:
        record_beat(f"beat@{found[2]}"[:100], "beat", pid=int(found[1]), version=settings.CODE_VERSION)


def keep_beating(name: str, kind: str, *, version: str) -> None:
    """Tell of this process for ever, every ten seconds; for a daemon thread. A database that is away is waited for."""
    while True:
        try:
            record_beat(name, kind, version=version)
        except DatabaseError:
            pass  # readiness says so already; here the next beat is the retry
        finally:
            connection.close()
        time.sleep(EVERY_S)
