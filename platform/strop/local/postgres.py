"""The embedded PostgreSQL: created once, started in the foreground, recovered after any kill.

Unix socket only, SCRAM everywhere, data checksums, two roles: `strop_owner` owns the tables and migrates, `strop_app`
is what every process of the product uses and is held to row-level security.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import psycopg
from psycopg import sql

from strop.home import Home
from strop.local import binaries
from strop.local.account import Account, make_private_folder, server_account
from strop.local.service import Service

OWNER = "strop_owner"
APP = "strop_app"
DATABASE = "strop"


@dataclass(frozen=True, kw_only=True)
class Postgres:
    home: Home
    account: Account | None

    @classmethod
    def of(cls, home: Home) -> "Postgres":
        return cls(home=home, account=server_account())

    @cached_property
    def bin(self) -> Path:
        return binaries.postgres_bin(self.account)

    @property
    def data(self) -> Path:
        return self.home.data / "postgres"

    @property
    def cluster_name(self) -> str:
        """Appears in the title of every process of this cluster, which is how we know our own."""
        return f"strop-{self.home.digest}"

    def service(self, **extra: str) -> Service:
        """`extra` are further server settings, e.g. fsync="off" for a throw-away cluster."""
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.home.sockets),
            "unix_socket_permissions": "0700",
            "cluster_name": self.cluster_name,
            "max_connections": "120",
            "shared_buffers": "128MB",
            "log_checkpoints": "off",
            "log_timezone": "UTC",
            **extra,
        }
        return Service(
            name="postgres",
            command=[self.bin / "postgres", "-D", self.data, *(f"--{key}={value}" for key, value in settings.items())],
            account=self.account,
            stop_signal=signal.SIGINT,  # fast stop: open transactions roll back, nothing is lost
            stop_s=20,
            prepare=self.prepare,
            is_ready=self.is_ready,
        )

    def prepare(self) -> None:
        make_private_folder(self.home.data, self.account)
        make_private_folder(self.home.sockets, self.account)
        if self.data.exists():
            self._check_version()
            self._clear_what_a_kill_left()
        else:
            self._create()

    def is_ready(self) -> bool:
        if not self._says_ready():  # a connection before that is logged as FATAL, which frightens people
            return False
        try:
            with self.connect("postgres"):
                return True
        except psycopg.OperationalError:
            return False

    def _says_ready(self) -> bool:
        """What the server wrote into the eighth line of its pid file, as pg_ctl asks it."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) > 7 and lines[7].strip() == "ready"

    def connect(self, database: str = DATABASE) -> psycopg.Connection:
        """A connection as the owner role, each statement on its own."""
        return psycopg.connect(
            host=str(self.home.sockets),
            port=5432,
            user=OWNER,
            password=self.home.secret("postgres-owner"),
            dbname=database,
            autocommit=True,
            connect_timeout=5,
        )

    def ensure_database(self, name: str = DATABASE) -> None:
        """Create the app role and the database `name` where they are missing. Safe to repeat."""
        with self.connect("postgres") as connection:
            if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [APP]).fetchone():
                password = sql.Literal(self.home.secret("postgres-app"))
                statement = "CREATE ROLE {} LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE PASSWORD {}"
                connection.execute(sql.SQL(statement).format(sql.Identifier(APP), password))
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        with self.connect(name) as connection:
            grant(connection, database=name, app=APP)

    def _create(self) -> None:
        """initdb beside the final name, then rename: a kill half-way leaves nothing that looks like a cluster."""
        staging = self.home.data / "postgres.new"
        shutil.rmtree(staging, ignore_errors=True)
        password = self.home.data / "password"
        password.touch(mode=0o600)
        password.write_text(self.home.secret("postgres-owner"))
        who = {} if self.account is None else {"user": self.account.uid, "group": self.account.gid, "extra_groups": []}
        if self.account is not None:
            os.chown(password, self.account.uid, self.account.gid)
        locale = ["--locale=C.UTF-8"]
        if binaries.postgres_major(self.bin) >= 17:
            locale = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        try:
            made = subprocess.run(
                [
                    self.bin / "initdb",
                    "-D",
                    staging,
                    f"--username={OWNER}",
                    f"--pwfile={password}",
                    "--encoding=UTF8",
                    "--auth=scram-sha-256",
                    "--data-checksums",
                    *locale,
                ],
                cwd="/",
                capture_output=True,
                text=True,
                env={**os.environ, "LC_ALL": "C"},
                **who,  # type: ignore[call-overload]
            )
        finally:
            password.unlink()
        if made.returncode:
            raise RuntimeError(f"initdb failed: {made.stderr.strip()}")
        staging.rename(self.data)

    def _check_version(self) -> None:
        made_by = int((self.data / "PG_VERSION").read_text())
        major = binaries.postgres_major(self.bin)
        if made_by != major:
            raise binaries.BinaryMissing(
                f"{self.data} was made by PostgreSQL {made_by} and {self.bin} is {major}; set PG_BIN to a {made_by}"
            )

    def _clear_what_a_kill_left(self) -> None:
        """End every process of this cluster: the home's lock is ours, so whoever still runs has lost its supervisor."""
        deadline = time.monotonic() + 20
        while orphans := cluster_processes(self.cluster_name):
            for pid in orphans:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes {orphans} of {self.cluster_name} do not end")
            time.sleep(0.02)
        # A recycled pid in this file would make the new postmaster refuse to start.
        (self.data / "postmaster.pid").unlink(missing_ok=True)


def grant(connection: psycopg.Connection, *, database: str, app: str) -> None:
    """Let `app` read and write, and nothing more, every table that the connected role makes from now on."""
    names = {"database": sql.Identifier(database), "app": sql.Identifier(app)}
    for statement in (
        "REVOKE ALL ON DATABASE {database} FROM PUBLIC",
        "GRANT CONNECT, TEMPORARY ON DATABASE {database} TO {app}",
        "GRANT USAGE ON SCHEMA public TO {app}",
        "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {app}",
        "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO {app}",
    ):
        connection.execute(sql.SQL(statement).format(**names))


def cluster_processes(cluster_name: str) -> list[int]:
    """Pids of the postmaster and children whose title or command line names the cluster; zombies have neither."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if (
                line.startswith(f"postgres: {cluster_name}: ".encode())
                or f"--cluster_name={cluster_name}\0".encode() in line
            ):
                found.append(int(folder.name))
    return found
