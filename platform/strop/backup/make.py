"""`strop backup`: rows and the files they refer to, of one moment, while everything keeps running.

Files of checkpoints and batches never change, so one snapshot of the rows says which of them to copy; retention waits
meanwhile. A home where nothing runs is backed up too: its database is started for as long as it takes.
"""

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from jobs import crash
from registry.backups import Journal
from strop import env
from strop.backup import archive, database
from strop.backup.contents import Files, Level, referenced_files
from strop.backup.database import DatabaseFailed, Server
from strop.backup.facts import Facts
from strop.home import Home
from strop.local import service
from strop.local.lock import is_locked, locked
from strop.local.postgres import Postgres

SUFFIX = ".tar.zst"
SECRETS = ("django",)  # signs sessions, links and webhooks; passwords of servers are made anew where they are restored
RETENTION_LOCK = 0x5354524F50  # advisory; retention takes it alone (rl_online.services.retention), backups share it
MARGIN = 1.1
SCRATCH = ".strop-dump-"
LEFTOVER_S = 24 * 3600.0  # in a folder that other homes may write to as well

Say = Callable[[str], None]


class NotEnoughSpace(RuntimeError):
    """The disk would fill up."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """A finished backup."""

    file: str
    created_at: str
    level: str
    bytes: int  # of the archive
    content_bytes: int  # of what it holds
    rows: int
    checkpoints: int
    batches: int
    missing: list[str]  # rows refer to them, the disk does not have them
    has_secrets: bool
    took_s: float


def backup(home: Home, target: Path | None, *, level: Level, with_secrets: bool, version: str, say: Say) -> Made:
    """Raises NotEnoughSpace, DatabaseFailed, BinaryMissing, OSError; then nothing is at `target`."""
    started, at = time.monotonic(), datetime.now(UTC)
    target = target or home.root / "backups" / f"strop-{at:%Y%m%dT%H%M%SZ}{SUFFIX}"
    with Journal(home.run).begun(target) as journal, reachable(home, say=say) as server:
        _clear_what_kills_left(home, target)
        made = _write(home, server, target, level=level, with_secrets=with_secrets, version=version, at=at, say=say)
        result = Made(**made, file=str(target), took_s=round(time.monotonic() - started, 1))
        _describe(target, result)
        journal.done(asdict(result))
    return result


@contextlib.contextmanager
def reachable(home: Home, *, say: Say) -> Iterator[Server]:
    """The home's database, started for the while when nothing runs there."""
    if env.text("DATABASE_URL") or is_locked(home):
        yield database.owner_server(home)
        return
    if not Postgres.of(home).data.exists():
        raise DatabaseFailed(f"{home.root} was never started: there is nothing to back up")
    with locked(home), started_postgres(home):
        say("nothing runs here; the database is started for this")
        yield Server.embedded(home)


@contextlib.contextmanager
def started_postgres(home: Home) -> Iterator[Postgres]:
    """The embedded server of a home whose lock is held. Raises BinaryMissing, RuntimeError or TimeoutError."""
    server = Postgres.of(home)
    what = server.service()
    with (home.run / "postgres.log").open("ab") as log:
        process = service.start(what, output=log.fileno())
        try:
            service.wait_ready(process, what)
            server.ensure_database()
            yield server
        finally:
            service.stop(process, what)


def _write(
    home: Home, server: Server, target: Path, *, level: Level, with_secrets: bool, version: str, at: datetime, say: Say
) -> dict[str, Any]:
    with server.connect(autocommit=True) as lock:
        lock.execute("SELECT pg_advisory_lock_shared(%s)", [RETENTION_LOCK])
        with database.snapshot(server) as (connection, snapshot_name):
            files = referenced_files(connection, home, level)
            rows = database.count_rows(connection)
            _check_space(target, database.database_bytes(connection) + files.num_bytes)
            facts = Facts(
                created_at=f"{at:%Y-%m-%dT%H:%M:%SZ}",
                code_version=version,
                migrations=_migrations(connection),
                postgres_major=database.server_major(connection),
                level=level,
                rows=rows,
                missing=files.missing,
            )
            with tempfile.TemporaryDirectory(dir=_folder(target), prefix=SCRATCH) as scratch:
                say(f"dumping {sum(rows.values()):,} rows")
                dumped = Path(scratch) / archive.DATABASE
                database.dump(server, snapshot_name, dumped)
                say(f"writing {len(files.paths):,} files of {files.num_checkpoints} checkpoints")
                content_bytes = _pack(home, target, dumped, files, facts, with_secrets=with_secrets)
    return {
        "created_at": facts.created_at,
        "level": str(level),
        "bytes": target.stat().st_size,
        "content_bytes": content_bytes,
        "rows": sum(rows.values()),
        "checkpoints": files.num_checkpoints,
        "batches": files.num_batches,
        "missing": files.missing,
        "has_secrets": with_secrets,
    }


def _pack(home: Home, target: Path, dumped: Path, files: Files, facts: Facts, *, with_secrets: bool) -> int:
    with archive.new_archive(target) as writer:
        writer.add_file(archive.DATABASE, dumped)
        dumped.unlink()
        crash.point("backup.mid_archive")
        for name, path in files.paths.items():
            writer.add_file(name, path)
        if with_secrets:
            for name in SECRETS:
                writer.add_bytes(f"secrets/{name}", home.secret(name).encode())
        writer.finish(facts.to_json())
    return sum(member.size for member in writer.members.values())


def _migrations(connection: psycopg.Connection) -> list[str]:
    """Applied ones, as <app>.<name>; what a restoring Strop must know."""
    if connection.execute("SELECT to_regclass('public.django_migrations') IS NULL").fetchone() == (True,):
        return []
    return [name for (name,) in connection.execute("SELECT app || '.' || name FROM django_migrations ORDER BY id")]


def _check_space(target: Path, num_bytes: int) -> None:
    free = shutil.disk_usage(_folder(target)).free
    if free < num_bytes * MARGIN:
        raise NotEnoughSpace(
            f"{_folder(target)} has {free / 1e9:.1f} GB free and up to {num_bytes * MARGIN / 1e9:.1f} GB are needed; "
            "name a FILE on another disk, or take fewer files with --with-checkpoints serving"
        )


def _clear_what_kills_left(home: Home, target: Path) -> None:
    """Dumps and half archives: at once in the home, where no other backup is at work, and after a day elsewhere."""
    for folder, age_s in ((home.root / "backups", 0.0), (target.parent, LEFTOVER_S)):
        for left in [*folder.glob(f"{SCRATCH}*"), *folder.glob(f".*{SUFFIX}{archive.DRAFT}")]:
            with contextlib.suppress(FileNotFoundError):
                if left.stat().st_mtime <= time.time() - age_s:
                    shutil.rmtree(left) if left.is_dir() else left.unlink()


def _folder(target: Path) -> Path:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return target.parent


def _describe(target: Path, made: Made) -> None:
    """A small file beside the archive, so that lists need not open it."""
    beside = target.with_name(target.name + ".json")
    beside.write_text(json.dumps(asdict(made), indent=1))
    os.chmod(beside, 0o600)
