"""What `strop doctor` says of a machine, a home and servers, each made as it should not be."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from django.conf import settings
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone

from jobs.models import Job, ProcessBeat
from registry.backups import Journal
from registry.models import Deployment
from registry.services import create_policy, register_checkpoint
from registry.tenancy import tenant
from rl_online.models import EngineHolding
from strop import cli
from strop.doctor import home as home_checks
from strop.doctor import machine, servers, work
from strop.doctor.finding import Finding, Level
from strop.home import Home
from strop.local.account import UnsafeFolder
from strop.local.lock import locked

CHECKOUT = Path(__file__).resolve().parents[3]


def examined(home: Path, **environment: str) -> tuple[int, dict[str, dict]]:
    """Exit status and findings by name, from the command in a process of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("STROP_", "DATABASE_", "REDIS_"))}
    done = subprocess.run(
        [sys.executable, "-m", "strop.cli", "--home", str(home), "doctor", "--json"],
        cwd=CHECKOUT,
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=180,
    )
    said = json.loads(done.stdout)
    assert said["broken"] == sum(row["level"] == "broken" for row in said["findings"])
    return done.returncode, {row["check"]: row for row in said["findings"]}


def is_helpful(finding: Finding) -> bool:
    return bool(finding.why and finding.fix)


def test_before_the_first_start_it_says_what_does_not_run_and_breaks_nothing(tmp_path: Path):
    status, found = examined(tmp_path / "home", STROP_PORT="0")
    assert status == 0, [row for row in found.values() if row["level"] == "broken"]
    skipped = {name for name, row in found.items() if row["level"] == "skipped"}
    assert {"home", "running", "database", "broker", "clock", "migrations", "jobs", "engines"} <= skipped
    assert found["torch"]["level"] == "ok" and "bfloat16 yes" in found["torch"]["found"]
    assert found["sandbox"]["level"] in ("ok", "warning") and "seccomp" in found["sandbox"]["found"]


def test_a_setting_that_cannot_be_read_is_named_and_the_machine_is_examined_all_the_same(tmp_path: Path):
    status, found = examined(tmp_path / "home", STROP_PORT="0", STROP_DEVICE="toaster")
    assert status == 1
    assert "STROP_DEVICE is 'toaster'; use one of auto, cpu, cuda" in found["settings"]["found"]
    assert found["python"]["level"] == "ok"


def test_an_own_database_that_does_not_answer_is_broken_and_its_password_is_not_shown(tmp_path: Path):
    url = "postgresql://strop_app:hunter2@127.0.0.1:1/strop"
    status, found = examined(tmp_path / "home", STROP_PORT="0", DATABASE_URL=url)
    assert (status, found["database"]["level"]) == (1, "broken")
    assert "127.0.0.1:1/strop does not answer" in found["database"]["found"]
    assert "hunter2" not in json.dumps(found)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_machine_without_posix_semaphores_is_told_how_to_get_them(tmp_path: Path):
    code = "from strop.doctor import machine; f = machine.semaphores(); print(f.level, f.found, f.fix)"
    line = f"mount -t tmpfs -o ro none /dev/shm && {sys.executable} -c '{code}'"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", line], capture_output=True, text=True, cwd=CHECKOUT)
    if done.returncode and "unshare" in done.stderr:
        pytest.skip("no mount namespaces here")
    assert done.stdout.startswith("broken a POSIX semaphore cannot be made"), done.stderr
    assert "mount -t tmpfs -o mode=1777 tmpfs /dev/shm" in done.stdout
    assert machine.semaphores().level is Level.OK


def test_a_taken_port_is_broken_and_a_free_one_is_not():
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        found = machine.port("127.0.0.1", number, is_running=False)
        assert found.level is Level.BROKEN and "--port 0" in found.fix
    assert machine.port("127.0.0.1", number, is_running=False).level is Level.OK


@pytest.mark.parametrize(("free", "level"), [(5e8, "broken"), (5e9, "warning"), (5e10, "ok")])
def test_little_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: float, level: str):
    from collections import namedtuple

    usage = namedtuple("usage", "total used free")(1e11, 0, free)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert machine.disk(Home(tmp_path / "not" / "there")).level == level


def test_a_home_that_others_may_read_is_a_warning(tmp_path: Path):
    (tmp_path / "home").mkdir(mode=0o755)
    found = home_checks.folder(Home(tmp_path / "home"))
    assert found.level is Level.WARNING and f"chmod 700 {tmp_path / 'home'}" in found.fix
    (tmp_path / "home").chmod(0o700)
    assert home_checks.folder(Home(tmp_path / "home")).level is Level.OK


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_home_of_another_user_is_broken(tmp_path: Path):
    (tmp_path / "home").mkdir(mode=0o700)
    os.chown(tmp_path / "home", 1234, 1234)
    assert "belongs to uid 1234; you are 0" in home_checks.folder(Home(tmp_path / "home")).found


def as_nobody(home: Home) -> tuple[bool, dict[str, str]]:
    """Whether the home is usable, and the finding about it, for somebody who is not root."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        os.write(write, json.dumps([home_checks.is_usable(home), home_checks.folder(home).to_json()]).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        is_usable, found = json.loads(said.read())
    os.waitpid(child, 0)
    return is_usable, found


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody may enter, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


becomes_nobody = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")


@becomes_nobody
def test_a_home_that_somebody_else_closed_is_broken(public: Path):
    (public / "home").mkdir(mode=0o700)
    is_usable, found = as_nobody(Home(public / "home"))
    assert not is_usable and f"{public / 'home'} belongs to uid 0; you are 65534" in found["found"]
    assert "strop --home FOLDER" in found["fix"]


@becomes_nobody
def test_a_home_that_may_not_be_made_is_broken(public: Path):
    is_usable, found = as_nobody(Home(public / "new" / "home"))
    assert not is_usable and found["level"] == "broken"
    assert f"you (uid 65534) may not make it in {public}" in found["found"]


@becomes_nobody
def test_what_root_once_left_in_somebodys_home_is_named(public: Path):
    (public / "home" / "run").mkdir(parents=True, mode=0o700)
    (public / "home").chmod(0o700)
    os.chown(public / "home", 65534, 65534)
    is_usable, found = as_nobody(Home(public / "home"))
    assert not is_usable and f"{public / 'home' / 'run'} belongs to uid 0 with mode 700" in found["found"]
    assert f"chown -R 65534 {public / 'home' / 'run'}" in found["fix"]


def on_a_disk(folder: Path, options: str, *steps: str) -> subprocess.CompletedProcess[str]:
    """Shell commands with a file system of their own at `folder`; skips where nobody may mount."""
    folder.mkdir()
    line = " && ".join([f"mount -t tmpfs -o mode=700,{options} none {folder}", *steps])
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", line], capture_output=True, text=True, cwd=CHECKOUT,
        env={"PATH": os.environ["PATH"], "STROP_PORT": "0"},
    )  # fmt: skip
    if "unshare" in done.stderr:
        pytest.skip("no mount namespaces here")
    return done


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_home_on_a_read_only_disk_is_broken_and_the_machine_is_examined_all_the_same(tmp_path: Path):
    strop = f"{sys.executable} -m strop.cli --home {tmp_path / 'disk' / 'home'} doctor --json"
    done = on_a_disk(tmp_path / "disk", "ro", strop)
    found = {row["check"]: row for row in json.loads(done.stdout)["findings"]}
    assert done.returncode == 1 and "mounted read-only" in found["home"]["fix"]
    assert (found["python"]["level"], found["running"]["level"]) == ("ok", "skipped")


def test_a_folder_of_the_home_that_strop_up_would_refuse_is_broken(tmp_path: Path):
    (tmp_path / "home" / "run").mkdir(parents=True)
    (tmp_path / "home").chmod(0o700)
    (tmp_path / "home" / "run").chmod(0o755)
    found = home_checks.folder(Home(tmp_path / "home"))
    assert found.level is Level.BROKEN and f"chmod 700 {tmp_path / 'home' / 'run'}" in found.fix
    with pytest.raises(UnsafeFolder), locked(Home(tmp_path / "home")):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_full_disk_is_broken_and_a_command_there_says_so_in_a_line(tmp_path: Path):
    small, strop = tmp_path / "small", f"{sys.executable} -m strop.cli --home {tmp_path / 'small' / 'home'}"
    fill = f"(dd if=/dev/zero of={small}/big bs=4k 2>/dev/null; true)"
    done = on_a_disk(small, "size=64k", fill, f"({strop} up --port 0 2>&1 || true)", f"{strop} doctor")
    assert done.returncode == 1
    assert "No space left on device; strop doctor says what to do" in done.stdout and "Traceback" not in done.stdout
    assert f"FAIL  disk        0.0 of 0.0 GB free at {small / 'home'}" in done.stdout, done.stdout
    assert "strop gc --dry-run" in done.stdout


def test_without_bubblewrap_the_sandbox_says_so_and_what_would_help(tmp_path: Path):
    """What is left without it is this kernel's own; the advice stands wherever that is not the best."""
    _, found = examined(tmp_path / "home", STROP_PORT="0", PATH=str(tmp_path))
    assert "bubblewrap not installed" in found["sandbox"]["found"]
    assert found["sandbox"]["level"] == "ok" or "install bubblewrap" in found["sandbox"]["fix"]


def test_who_runs_on_the_home_is_said(tmp_path: Path):
    home = Home(tmp_path)
    assert home_checks.running(home).level is Level.SKIPPED
    with locked(home):
        assert home_checks.running(home).level is Level.OK


def test_a_missing_an_old_and_a_failed_backup_are_warnings(tmp_path: Path):
    home = Home(tmp_path)
    home.data.mkdir(parents=True)
    try:
        assert home_checks.backup(home).found == "none was ever made"
        for age_days, level in ((0, Level.OK), (9, Level.WARNING)):
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - age_days * 86400))
            with Journal(home.run).begun(tmp_path / "b") as entry:
                entry.done({"created_at": at, "file": "/mnt/b"})
            assert home_checks.backup(home).level is level
        with pytest.raises(OSError), Journal(home.run).begun(tmp_path / "b"):
            raise OSError("No space left on device")
        assert "the last one failed: No space left" in home_checks.backup(home).found
    finally:
        home.data.rmdir()


def test_the_apps_role_and_the_clock_are_fine_here(db):
    assert servers.database(is_running=True).level is Level.OK
    assert servers.clock(is_running=True).level is Level.OK


def test_a_clock_that_goes_wrong_is_said(db, monkeypatch: pytest.MonkeyPatch):
    real = time.time
    for skew_s, level in ((5.0, Level.WARNING), (3600.0, Level.BROKEN)):
        with monkeypatch.context() as wrong:
            wrong.setattr("strop.doctor.servers.time.time", lambda skew_s=skew_s: real() - skew_s)
            found = servers.clock(is_running=True)
        assert found.level is level and f"{skew_s:+.2f} s" in found.found and is_helpful(found)


@pytest.mark.django_db(databases=["default", "owner"])
def test_a_superuser_as_the_apps_role_is_broken(monkeypatch: pytest.MonkeyPatch):
    from django.db import connections

    monkeypatch.setattr(connections["default"], "cursor", connections["owner"].cursor)
    found = servers.database(is_running=True)
    assert found.level is Level.BROKEN and "is a superuser" in found.found


def test_a_broker_that_evicts_is_a_warning(valkey):
    import redis

    assert servers.broker(is_running=True).level is Level.OK
    with redis.Redis(unix_socket_path=str(valkey.socket)) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            found = servers.broker(is_running=True)
        finally:
            client.config_set("maxmemory-policy", "noeviction")
    assert found.level is Level.WARNING and "allkeys-lru" in found.found and is_helpful(found)


def test_a_broker_that_is_away_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(settings, "CELERY_BROKER_URL", f"redis+socket://{tmp_path}/none.sock")
    assert servers.broker(is_running=True).level is Level.BROKEN


def test_all_migrations_are_applied_here(db):
    assert work.migrations().level is Level.OK


def test_a_pending_and_an_unknown_migration_are_broken(db):
    [newest] = MigrationLoader(connection).graph.leaf_nodes("rl_online")
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = %s AND name = %s", newest)
    assert f"1 are pending, first {'.'.join(newest)}" in work.migrations().found
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO django_migrations (app, name, applied) VALUES ('evals', '9999_new', now())")
    found = work.migrations()
    assert found.level is Level.BROKEN and "evals.9999_new is not known here" in found.found


def test_jobs_that_wait_too_long_are_broken_and_given_up_ones_a_warning(db):
    assert work.jobs().level is Level.OK
    Job.objects.create(kind="a", run_at=timezone.now(), state="quarantined")
    assert work.jobs().level is Level.WARNING
    Job.objects.create(kind="feedback.label", run_at=timezone.now() - timedelta(minutes=3))
    found = work.jobs()
    assert found.level is Level.BROKEN and "feedback.label has been due for 180 s" in found.found


def test_a_process_that_has_gone_silent_is_named(db):
    now = timezone.now()
    for name, age_s in (("web@a", 5), ("worker@a", 300), ("worker@b", 5), ("updater", 120)):
        ProcessBeat.objects.create(
            name=name, kind=name.split("@")[0], pid=1, started_at=now, seen_at=now - timedelta(seconds=age_s)
        )
    running = {"started_at": f"{now - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}", "processes": [{"name": "updater"}]}
    found = work.heartbeats(running)
    assert found.level is Level.WARNING and "updater silent" in found.found
    assert "worker" not in found.found.split(";")[1], "another worker lives"
    assert work.heartbeats({}).level is Level.OK
    left_out = {"started_at": f"{now - timedelta(seconds=90):%Y-%m-%dT%H:%M:%SZ}", "processes": [{"name": "web"}]}
    assert work.heartbeats(left_out).level is Level.OK, "its last sign is of an earlier start"


def test_a_serving_checkpoint_that_no_engine_holds_is_broken(project):
    assert "nothing serves yet" in work.engines().found
    with tenant(project.id):
        policy = create_policy("editor", source="test", actor="test")
        made = {"tree_digest": "0" * 64, "folder": "f", "num_bytes": 1, "optimizer_step": 0, "actor": "test"}
        first = register_checkpoint(policy, version=1, parent=None, state="serving", **made)
        Deployment.objects.create(policy=policy, checkpoint=first)
    found = work.engines()
    assert found.level is Level.BROKEN and "editor@1" in found.found and is_helpful(found)
    with tenant(project.id):
        EngineHolding.objects.create(engine="e", checkpoint=first, tree_digest=first.tree_digest)
    assert work.engines().found == "hold editor@1"


def test_open_to_others_without_safe_settings_is_broken(settings):
    assert work.production().level is Level.OK
    settings.HOST = "0.0.0.0"
    found = work.production()
    assert found.level is Level.BROKEN and "strop.E006" in found.found and is_helpful(found)


def test_the_text_for_people_names_why_and_how(monkeypatch: pytest.MonkeyPatch):
    from strop.doctor import examine

    found = [Finding(check="disk", level=Level.BROKEN, found="full", why="It stops.", fix="Free some.")]
    monkeypatch.setattr(examine, "examine", lambda home: iter(found))
    result = CliRunner().invoke(cli.group, ["doctor"])
    assert result.exit_code == 1
    assert "FAIL  disk        full" in result.output and "-> Free some." in result.output
