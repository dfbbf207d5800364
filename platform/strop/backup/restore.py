"""`strop restore`: a verified archive becomes a home; until it is whole, nothing that was there is touched.

The new home is built beside its place (`.<name>.restoring`), its row counts are compared with the archive's, and only
then are the two renamed: the old home aside, where it still starts, and the new one in.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from strop import env
from strop.backup import archive, database
from strop.backup.archive import BadArchive, Contents
from strop.backup.database import DatabaseFailed, Server
from strop.backup.facts import Facts
from strop.backup.make import NotEnoughSpace, Say, started_postgres
from strop.home import Home
from strop.local.account import make_private_folder
from strop.local.belonging import set_aside_strangers
from strop.local.lock import is_locked, locked
from strop.local.remove import remove
from strop.migrations_on_disk import known_migrations

ROWS_TO_DISK = 3.0  # a dump becomes tables with indexes of about this many times its size
ABSENT_SQL = "UPDATE {table} SET files_deleted_at = now(), files_deleted_reason = %s WHERE files_deleted_at IS NULL"


class HomeInUse(RuntimeError):
    """The home is not empty, or something runs on it."""


class TooNew(RuntimeError):
    """The archive was made by a newer Strop or PostgreSQL than is installed here."""


@dataclass(frozen=True, kw_only=True)
class Restored:
    home: str
    created_at: str  # of the backup
    rows: int
    files: int
    bytes: int
    level: str
    missing: list[str]  # rows refer to these, and neither the backup nor this home has their files
    old_home: str | None  # where what was there is now, whole: strop --home <old_home> up


def restore(home: Home, source: Path, *, is_replacing: bool, say: Say) -> Restored:
    """Raises BadArchive, TooNew, HomeInUse, NotEnoughSpace, DatabaseFailed; then the home is as it was."""
    with source.open("rb") as file:
        say(f"verifying {source.name}")
        contents = archive.verify(file)
        facts = Facts.of(contents.facts)
        if archive.DATABASE not in contents.members:
            raise BadArchive(f"it holds no {archive.DATABASE}")
        _check_versions(facts)
        _check_target(home, is_replacing=is_replacing)
        _check_space(home, contents)
        stage = Home(home.root.with_name(f".{home.root.name}.restoring"))
        remove(stage)  # what a killed restore left
        with contextlib.ExitStack() as cleaning:
            cleaning.callback(remove, stage)
            if home.run.exists():
                cleaning.enter_context(locked(home))  # nobody starts it meanwhile
            make_private_folder(stage.root, None)
            say(f"unpacking {len(contents.members):,} files, {contents.num_bytes / 1e6:,.0f} MB")
            archive.unpack(file, contents, lambda name: stage.root / name)
            say(f"restoring {sum(contents.facts['rows'].values()):,} rows")
            _fill(stage, facts)
            old = _swap(stage, home)
    return Restored(
        home=str(home.root),
        created_at=facts.created_at,
        rows=sum(facts.rows.values()),
        files=len(contents.members),
        bytes=contents.num_bytes,
        level=facts.level,
        missing=facts.missing,
        old_home=None if old is None else str(old),
    )


def is_used(home: Home) -> bool:
    """Something lives there; a home that a command has only looked at has no more than secrets."""
    folders = (home.checkpoints, home.batches, home.corpora, home.texts, home.models)
    return home.data.exists() or any(folder.is_dir() and any(folder.iterdir()) for folder in folders)


def _check_versions(facts: Facts) -> None:
    unknown = sorted(set(facts.migrations) - known_migrations(facts.migrations))
    if unknown:
        raise TooNew(
            f"made by Strop {facts.code_version}, which is newer: {unknown[0]} is not known here; upgrade Strop first"
        )


def _check_target(home: Home, *, is_replacing: bool) -> None:
    if is_locked(home):
        raise HomeInUse(f"Strop is running on {home.root}; stop it first")
    if is_used(home) and not is_replacing:
        raise HomeInUse(f"{home.root} is not empty; with --replace it is moved aside, whole")
    if url := env.text("DATABASE_OWNER_URL") or env.text("DATABASE_URL"):
        with Server.at(url).connect() as connection:
            if not database.is_empty(connection):
                raise HomeInUse("the database that DATABASE_URL names is not empty; create a new one and name that")


def _check_space(home: Home, contents: Contents) -> None:
    needed = contents.num_bytes + ROWS_TO_DISK * contents.members[archive.DATABASE].size
    parent = next(folder for folder in home.root.parents if folder.exists())
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise NotEnoughSpace(f"{parent} has {free / 1e9:.1f} GB free and about {needed / 1e9:.1f} GB are needed")


def _fill(stage: Home, facts: Facts) -> None:
    dumped = stage.root / archive.DATABASE
    with _database(stage) as server:
        with server.connect() as connection:
            major = database.server_major(connection)
            database.require_all_rows(connection)
            if major < facts.postgres_major:
                raise TooNew(f"dumped from PostgreSQL {facts.postgres_major}; the one here is {major}")
        database.fill(server, dumped)
        with server.connect(autocommit=True) as connection:
            _compare(facts.rows, database.count_rows(connection))
            _say_what_is_absent(connection, stage, facts)
            connection.execute("ANALYZE")
    dumped.unlink()


@contextlib.contextmanager
def _database(stage: Home) -> Iterator[Server]:
    if url := env.text("DATABASE_OWNER_URL") or env.text("DATABASE_URL"):
        yield Server.at(url)
        return
    with locked(stage):
        set_aside_strangers(stage)
        with started_postgres(stage):
            yield Server.embedded(stage)


def _compare(wanted: Mapping[str, int], found: Mapping[str, int]) -> None:
    wrong = [name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)]
    if wrong:
        name = min(wrong)
        raise DatabaseFailed(f"table {name} has {found.get(name)} rows after restoring, the backup {wanted.get(name)}")


def _say_what_is_absent(connection: psycopg.Connection, stage: Home, facts: Facts) -> None:
    """Rows whose files the backup left out say so, where the schema has a place for it."""
    reason = f"not in the backup of {facts.created_at}"
    for table, column, exists in (
        ("registry_checkpoint", "folder", lambda value: (stage.checkpoints / value / "MANIFEST.json").is_file()),
        ("rl_online_rewardmodel", "folder", lambda value: (stage.checkpoints / value / "MANIFEST.json").is_file()),
        ("rl_online_rewardbatch", "digest", lambda value: (stage.batches / value).is_dir()),
        ("rl_online_corpus", "digest", lambda value: not value or any(stage.corpora.glob(f"*/{value}"))),
    ):
        names = {"table": sql.Identifier(table), "column": sql.Identifier(column)}
        if not _has_column(connection, table, "files_deleted_at"):
            continue
        values = connection.execute(sql.SQL("SELECT {column} FROM {table}").format(**names)).fetchall()
        absent = [value for (value,) in values if not exists(value)]
        if absent:
            condition = sql.SQL(" AND {column} = ANY(%s)").format(**names)
            connection.execute(sql.SQL(ABSENT_SQL).format(**names) + condition, [reason, absent])


def _has_column(connection: psycopg.Connection, table: str, column: str) -> bool:
    query = "SELECT 1 FROM information_schema.columns WHERE table_name = %s AND column_name = %s"
    return connection.execute(query, [table, column]).fetchone() is not None


def _swap(stage: Home, home: Home) -> Path | None:
    """The old home aside (with its servers' data, so that it still starts there), the new one in its place."""
    shutil.rmtree(stage.run, ignore_errors=True)
    aside = None
    if is_used(home):
        aside = home.root.with_name(f"{home.root.name}.before-restore-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
        _move(home, Home(aside))
    elif home.root.exists():
        shutil.rmtree(home.root)
    _move(stage, home)
    if aside is not None and (aside / "backups").is_dir():
        (aside / "backups").rename(home.root / "backups")
    return aside


def _move(source: Home, target: Home) -> None:
    moved = source.server_root, target.server_root
    if source.server_root != source.root and source.server_root.exists():
        if target.server_root.exists():  # data of a home that is gone
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            target.server_root.rename(target.server_root.with_name(f"{target.server_root.name}.left-{stamp}"))
        moved[0].rename(moved[1])
    source.root.rename(target.root)
    _sync(target.root.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
