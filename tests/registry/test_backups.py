import json
import os
from pathlib import Path

import pytest

from registry.backups import BackupUnderWay, Journal


def test_before_the_first_backup_there_is_nothing_to_tell(tmp_path: Path):
    assert Journal(tmp_path / "run").read() == {}


def test_what_was_made_is_kept_when_the_next_one_fails(tmp_path: Path):
    journal = Journal(tmp_path / "run")
    with journal.begun(Path("/mnt/a")) as entry:
        entry.done({"file": "/mnt/a", "bytes": 5})
    with pytest.raises(OSError, match="disk full"), journal.begun(Path("/mnt/b")):
        raise OSError("disk full")
    told = journal.read()
    assert (told["state"], told["error"], told["last"]) == ("failed", "disk full", {"file": "/mnt/a", "bytes": 5})


def test_a_second_backup_at_the_same_time_is_refused(tmp_path: Path):
    journal = Journal(tmp_path / "run")
    with journal.begun(Path("/mnt/a")), pytest.raises(BackupUnderWay, match=f"pid {os.getpid()}"):
        journal.begun(Path("/mnt/b")).__enter__()


def test_a_backup_whose_process_was_killed_has_failed(tmp_path: Path):
    journal = Journal(tmp_path / "run")
    (tmp_path / "run").mkdir()
    journal.path.write_text(json.dumps({"state": "running", "pid": 2**22 + 5, "file": "/mnt/a", "last": None}))
    assert journal.read()["state"] == "failed"
    with journal.begun(Path("/mnt/b")) as entry:
        entry.done({})
    assert journal.read()["state"] == "done"
