"""A running Strop for tests: `strop up` as a user starts it, in a home of its own, with every process real.

`LiveStrop.copy_of` clones a stopped home, so that several runs start from the very same rows, ids and weights.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psycopg

from strop.home import Home
from tests.prepared import copy_home, prepared_home, remove

CHECKOUT = Path(__file__).resolve().parents[1]
READY_S = 180
T = TypeVar("T")


@dataclass
class LiveStrop:
    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None
    url: str = ""

    @property
    def home(self) -> Home:
        return Home(self.root)

    @property
    def env(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("STROP_", "DATABASE_"))}
        kept = {name: value for name, value in os.environ.items() if name in ("STROP_SAMPLES", "STROP_DATA")}
        return inherited | kept | {"STROP_HOME": str(self.root), "OMP_NUM_THREADS": "1"} | self.environment

    def prepare(self) -> None:
        """Begin with the migrated, empty database, which spares the first start ten seconds of a processor."""
        copy_home(prepared_home(), self.home)

    def start(self, *options: str) -> dict[str, str]:
        """Returns the READY line's fields: sign_in and key, where shown."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "strop.cli", "--home", str(self.root), "up", "--port", "0", "--quiet", *options],
            cwd=CHECKOUT,
            env=self.env,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("READY "), f"strop up said {line!r}; logs in {self.home.logs}\n{self.log_tails()}"
        _, self.url, *fields = line.split()
        return dict(pair.split("=", 1) for pair in fields)

    def stop(self) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(90)
        finally:
            self.process.kill()
            self.process.stdout.close()  # type: ignore[union-attr]
            self.process = None

    def pid_of(self, name: str) -> int | None:
        state = json.loads((self.home.run / "state.json").read_text())
        return next((row["pid"] for row in state["processes"] if row["name"] == name), None)

    def kill(self, name: str) -> None:
        """SIGKILL one process, and wait until another one has taken its place."""
        before = self.pid_of(name)
        assert before is not None
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: self.pid_of(name) not in (before, None), f"{name} starts again", 60)

    def wait_ready(self) -> None:
        wait_until(lambda: httpx.get(f"{self.url}/readyz", timeout=2).status_code == 200, "the site is ready", 60)

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """A query as the tables' owner, who sees every tenant."""
        home = self.home
        with psycopg.connect(
            host=str(home.sockets),
            port=5432,
            dbname="strop",
            user="strop_owner",
            password=home.secret("postgres-owner"),
        ) as connection:
            return connection.execute(query, values or None).fetchall()  # type: ignore[arg-type]

    def run_python(self, code: str) -> str:
        """Run code with Django set up in this home; returns its standard output."""
        preamble = "import django; django.setup()\n"
        result = subprocess.run(
            [sys.executable, "-c", preamble + code],
            cwd=CHECKOUT,
            text=True,
            capture_output=True,
            env=self.env | {"DJANGO_SETTINGS_MODULE": "strop.settings"},
            check=False,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    def strop(self, *words: str) -> dict[str, Any]:
        """A command with --json; returns the object it prints."""
        result = subprocess.run(
            [sys.executable, "-m", "strop.cli", "--home", str(self.root), *words, "--json"],
            cwd=CHECKOUT,
            env=self.env,
            text=True,
            capture_output=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def log_tails(self) -> str:
        return "\n".join(f"== {log.name}\n{log.read_text()[-1500:]}" for log in sorted(self.home.logs.glob("*.log")))

    def copy_of(self, other: "LiveStrop") -> None:
        """Become a clone of a stopped home."""
        assert other.process is None
        copy_home(other.home, self.home)

    def remove(self) -> None:
        remove(self.home)


@contextmanager
def live(root: Path, *options: str, like: LiveStrop | None = None, **environment: str) -> Iterator[LiveStrop]:
    """A Strop that runs while the block does, in the new folder `root`: cloned from the stopped `like`, or new."""
    root.mkdir(parents=True)
    strop = LiveStrop(root, environment)
    try:
        if like is None:
            strop.prepare()
        else:
            strop.copy_of(like)
        strop.start(*options)
        yield strop
    finally:
        if strop.process is not None:
            strop.stop()
        strop.remove()


def wait_until(is_so: Callable[[], T], what: str, seconds: float = 60, every_s: float = 0.2) -> T:
    """Poll until `is_so()` is true; errors of a server that is just starting count as not yet."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if found := is_so():
                return found
        except (httpx.HTTPError, psycopg.OperationalError, FileNotFoundError, json.JSONDecodeError):
            pass
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s in vain until {what}"
        time.sleep(every_s)
