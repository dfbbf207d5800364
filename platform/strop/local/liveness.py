"""Whether a program moves: what the supervisor asks every ten seconds of those that can live and do nothing.

Not readiness: a broken database or broker is no fault of the program that waits for it.
"""

import http.client
import os
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psycopg

from strop.home import Home
from strop.local.postgres import Postgres

QUEUES = ["default", "judge"]
STUCK_AFTER = "60 seconds"  # sweeps come every two: a job that is due for so long was offered thirty times
MOVES_SQL = """
SELECT NOT EXISTS (SELECT 1 FROM jobs_job WHERE queue = ANY(%(queues)s) AND state = 'queued'
                   AND run_at < clock_timestamp() - %(age)s::interval)
    OR EXISTS (SELECT 1 FROM jobs_job WHERE queue = ANY(%(queues)s)
               AND (finished_at > clock_timestamp() - %(age)s::interval
                    OR (state = 'running' AND lease_until > clock_timestamp())))
"""


def jobs_move(connection: psycopg.Connection) -> bool:
    """False when jobs of Celery's queues are long due and none is running or was done lately."""
    row = connection.execute(MOVES_SQL, {"queues": QUEUES, "age": STUCK_AFTER}).fetchone()
    return bool(row and row[0])


def worker_moves(home: Home) -> Callable[[], bool]:
    def ask() -> bool:
        url = os.environ.get("DATABASE_URL")
        try:
            with psycopg.connect(url, connect_timeout=3) if url else Postgres.of(home).connect() as connection:
                return jobs_move(connection)
        except psycopg.Error:
            return True

    return ask


def answers(url: str, *, timeout_s: float) -> bool:
    """A GET of our own address is answered with 200."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as response:
            return response.status == 200
    except (urllib.error.URLError, OSError):
        return False


def socket_answers(path: Path, address: str, *, timeout_s: float) -> bool:
    """A GET of `address` over the unix socket `path` is answered with 200."""
    connection = _OverSocket(path, timeout_s)
    try:
        connection.request("GET", address)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class _OverSocket(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("engine", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
