"""Settings -> System: what an owner sees of processes, disk, backups and given-up jobs, and what the buttons do."""

import json
import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.utils import timezone

from console.reads import system as reads
from jobs.models import Job, ProcessBeat
from registry.backups import BACKUP_JOB, Journal
from registry.models import AuditEvent, Checkpoint
from registry.tenancy import tenant
from rl_online.models import EngineReport
from tests.console import factories

URL = "/p/editor/settings/system"


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(django_settings, "HOME", type(django_settings.HOME)(tmp_path))
    (tmp_path / "run").mkdir()


def supervised(tmp_path: Path, **pids: int | None) -> None:
    """A supervisor's state file; its own pid is ours, so it counts as running."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    rows = [{"name": name, "pid": pid, "started_at": at, "restarts": 2, "log": "x"} for name, pid in pids.items()]
    (tmp_path / "run" / "state.json").write_text(
        json.dumps({"pid": os.getpid(), "running": True, "processes": rows, "url": "http://127.0.0.1:1"})
    )


def beat(name: str, *, age_s: float = 1, pid: int = 7) -> None:
    now = timezone.now()
    ProcessBeat.objects.create(
        name=name,
        kind=name.split("@")[0],
        pid=pid,
        version="9.9",
        started_at=now,
        seen_at=now - timedelta(seconds=age_s),
    )


def page(as_owner) -> str:
    response = as_owner.get(URL)
    assert response.status_code == 200
    return response.content.decode()


def test_before_anything_ran_nothing_is_claimed(as_owner, project):
    text = page(as_owner)
    assert "No process has given a sign of life yet." in text
    assert "No backup yet." in text and "never collected" in text and "no answer was run yet" in text


def test_i45_each_process_is_named_with_version_pid_restarts_and_last_sign_of_life(as_owner, project, tmp_path):
    supervised(tmp_path, postgres=os.getpid(), web=4242, engine=os.getppid(), updater=None)
    beat("web@here:8000", pid=4242)
    with tenant(project.id):
        EngineReport.objects.create(engine="embedded", pid=os.getppid(), code_version="1.2.3", uptime_s=5.0)
        found = {process.kind: process for process in reads.processes(reads.engine_reports())}
    assert [found[name].state for name in ("postgres", "web", "engine", "updater")] == ["alive"] * 3 + ["stopped"]
    assert (found["web"].pid, found["web"].version, found["web"].restarts) == (4242, "9.9", 2)
    assert (found["engine"].version, found["engine"].restarts) == ("1.2.3", 2)
    assert found["postgres"].seen_at is None and found["web"].seen_at is not None
    text = page(as_owner)
    assert "watched by the supervisor" in text and "9.9" in text and "1.2.3" in text


def test_a_worker_on_another_machine_and_a_silent_one_are_shown_apart(as_owner, project):
    beat("worker@a", age_s=5)
    beat("worker@b", age_s=400)
    found = {process.name: process for process in reads.processes([])}
    assert (found["worker@a"].state, found["worker@b"].state) == ("alive", "silent")
    assert found["worker@a"].restarts is None
    assert "not supervised" in page(as_owner)


def test_the_beat_of_a_process_that_was_restarted_is_not_taken_for_the_new_one(project, tmp_path):
    supervised(tmp_path, updater=os.getpid())
    beat("updater", age_s=30, pid=1)
    [found] = reads.processes([])
    assert (found.pid, found.seen_at) == (os.getpid(), None)


def test_disk_is_told_by_kind_and_a_linked_file_counts_once(project, tmp_path):
    policy = tmp_path / "checkpoints" / "p"
    for folder in (policy / "v000001", policy / "train" / "v000001", policy / "deltas", tmp_path / "models" / "m"):
        folder.mkdir(parents=True)
    (policy / "v000001" / "weights").write_bytes(b"x" * 1000)
    os.link(policy / "v000001" / "weights", tmp_path / "models" / "m" / "weights")
    (policy / "train" / "v000001" / "state").write_bytes(b"x" * 70)
    found = {use.kind: (use.bytes, use.files) for use in reads.disk()}
    assert found["checkpoints"] == (1000, 1) and found["models"] == (0, 0) and found["optimizer state"] == (70, 1)
    assert found["database"][0] > 1_000_000


def test_backups_are_listed_and_a_failed_one_says_why(as_owner, project, tmp_path):
    (tmp_path / "backups").mkdir()
    (tmp_path / "backups" / "strop-1.tar.zst").write_bytes(b"x" * 4000)
    told = {"created_at": "2026-11-29T01:02:03Z", "level": "serving", "rows": 1234}
    (tmp_path / "backups" / "strop-1.tar.zst.json").write_text(json.dumps(told))
    (tmp_path / "backups" / "by-hand.tar.zst").write_bytes(b"x")
    with pytest.raises(OSError), Journal(tmp_path / "run").begun(tmp_path / "b"):
        raise OSError("<b>No space left</b>")
    text = page(as_owner)
    assert "strop-1.tar.zst" in text and "1,234" in text and "2026-11-29 01:02:03" in text and "by-hand.tar.zst" in text
    assert "The last backup failed: &lt;b&gt;No space left" in text


def test_back_up_now_asks_for_one_backup_however_often_it_is_pressed(as_owner, project):
    for _ in range(2):
        assert as_owner.post(f"{URL}/backup", {"level": "serving"}).status_code == 302
    [job] = Job.objects.filter(kind=BACKUP_JOB)
    assert job.payload["level"] == "serving" and job.project_id is None
    with tenant(project.id):
        assert AuditEvent.objects.filter(verb="back up", actor="owner").count() == 1


def test_a_backup_is_refused_with_its_reason_where_enough_lie(as_owner, project, tmp_path):
    (tmp_path / "backups").mkdir()
    for number in range(5):
        (tmp_path / "backups" / f"strop-{number}.tar.zst").touch()
    page = as_owner.post(f"{URL}/backup", {"level": "all"}, follow=True).content.decode()
    assert "5 backups lie in the home already" in page
    assert not Job.objects.filter(kind=BACKUP_JOB).exists()


def test_an_unknown_level_is_refused(as_owner, project):
    page = as_owner.post(f"{URL}/backup", {"level": "everything"}, follow=True).content.decode()
    assert "use one of all, serving, none" in page
    assert not Job.objects.filter(kind=BACKUP_JOB).exists()


def test_given_up_jobs_of_this_project_alone_are_shown_as_text_and_replayed(as_owner, project, other_project):
    mine = factories.make_given_up_job(project, error="Traceback\n<script>alert(1)</script> \u202egnp")
    theirs = factories.make_given_up_job(other_project, error="secret of others")
    text = page(as_owner)
    assert "<script>alert" not in text and "&lt;script&gt;" in text and "secret of others" not in text
    assert as_owner.post(f"{URL}/jobs/{theirs.pk}/replay").status_code == 404
    assert as_owner.post(f"{URL}/jobs/{mine.pk}/replay").status_code == 302
    mine.refresh_from_db()
    theirs.refresh_from_db()
    assert (mine.state, theirs.state) == ("queued", "quarantined")


def test_collecting_is_asked_for_as_a_job(as_owner, project):
    as_owner.post(f"{URL}/collect")
    assert Job.objects.filter(kind="rl_online.retention", project_id=project.id).count() == 1


def test_a_reset_needs_the_name_typed_and_leaves_what_people_set_up(as_owner, project, loop):
    answer = as_owner.post(f"{URL}/reset", {"name": "edito"}, follow=True).content.decode()
    assert "type editor to delete its data" in answer
    with tenant(project.id):
        assert Checkpoint.objects.count() == 3 and loop.policy.deployments.get().checkpoint.version == 2


def test_the_reset_waits_for_an_update_under_way(as_owner, project, loop):
    answer = as_owner.post(f"{URL}/reset", {"name": "editor"}, follow=True).content.decode()
    assert "an update is under way" in answer


def test_many_processes_and_jobs_cost_no_more_queries(as_owner, project, django_assert_max_num_queries):
    for number in range(60):
        beat(f"worker@host-{number}")
        factories.make_given_up_job(project)
    with django_assert_max_num_queries(45):
        page(as_owner)
