"""A backup that was asked for on a page: its process is started once, and one that says nothing counts as failed."""

import json
import os
import time
from pathlib import Path

import pytest
from django.conf import settings

from jobs.services import ClaimedJob, NotYet
from registry.backups import BACKUP_JOB, Journal
from strop.backup.job import BackupFailed, backup_job


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "HOME", type(settings.HOME)(tmp_path))


def job(*, attempts: int = 1, level: str) -> ClaimedJob:
    payload = {"stamp": "20261130T000000Z", "level": level}
    return ClaimedJob(
        id=1, kind=BACKUP_JOB, project_id=None, payload=payload, attempts=attempts, fence=1, worker="test"
    )


def ended(tmp_path: Path) -> dict[str, object]:
    """The journal once no process is at work."""
    until = time.monotonic() + 60
    while (said := Journal(tmp_path / "run").read())["state"] == "running":
        assert time.monotonic() < until
        time.sleep(0.2)
    return said


def test_a_process_that_ends_before_its_first_word_is_a_failed_attempt_and_not_started_again(tmp_path):
    with pytest.raises(NotYet, match="has begun"):
        backup_job(job(level="no such level"))
    assert ended(tmp_path)["error"] == "the process that made it was ended"
    for _ in range(2):
        with pytest.raises(BackupFailed, match="was ended"):
            backup_job(job(level="no such level"))
    assert (tmp_path / "logs" / "backup.log").read_text().count("Invalid value") == 1


def test_while_its_process_works_no_other_one_is_started(tmp_path):
    Journal(tmp_path / "run").announce(tmp_path / "backups" / "strop-20261130T000000Z.tar.zst", os.getpid())
    for _ in range(2):
        with pytest.raises(NotYet, match="under way"):
            backup_job(job(level="none"))
    assert not (tmp_path / "logs").exists()


def test_what_the_process_said_is_why_the_attempt_failed(tmp_path):
    with pytest.raises(NotYet):
        backup_job(job(level="none"))
    said = ended(tmp_path)
    assert said["state"] == "failed" and said["error"] != "the process that made it was ended", json.dumps(said)
    with pytest.raises(BackupFailed):
        backup_job(job(level="none"))


def test_what_was_made_stands_also_when_the_worker_that_started_it_died(tmp_path):
    file = tmp_path / "backups" / "strop-20261130T000000Z.tar.zst"
    with Journal(tmp_path / "run").begun(file) as entry:
        entry.done({"file": str(file)})
    backup_job(job(attempts=2, level="none"))  # the dead worker's attempt counted
    assert not (tmp_path / "logs").exists()
