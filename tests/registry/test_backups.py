import json
import os
from pathlib import Path

import pytest

from registry.backups import MOST_KEPT, BackupUnderWay, Journal, check_may_begin
from registry.errors import Conflict


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


def test_a_process_that_was_given_the_pid_of_a_killed_backup_is_not_taken_for_it(tmp_path: Path):
    journal = Journal(tmp_path / "run")
    journal.announce(Path("/mnt/a"), os.getpid())
    said = journal.read()
    assert said["state"] == "running"
    journal.path.write_text(json.dumps(said | {"born": said["born"] - 1}))
    assert journal.read()["state"] == "failed"


def test_a_process_that_died_before_its_first_word_has_failed(tmp_path: Path):
    journal = Journal(tmp_path / "run")
    journal.announce(Path("/mnt/a"), 2**22 + 5)
    told = journal.read()
    assert (told["state"], told["file"]) == ("failed", "/mnt/a")


def test_a_process_takes_over_the_entry_that_was_written_for_it(tmp_path: Path):
    journal = Journal(tmp_path / "run")
    journal.announce(Path("/mnt/a"), os.getpid())
    with journal.begun(Path("/mnt/a")) as entry:
        entry.done({"bytes": 5})
    journal.announce(Path("/mnt/a"), os.getpid())  # written too late
    assert journal.read()["state"] == "done"


def test_an_entry_of_another_backup_is_not_written_over(tmp_path: Path):
    journal = Journal(tmp_path / "run")
    with journal.begun(Path("/mnt/by-hand")):
        Journal(tmp_path / "run").announce(Path("/mnt/a"), 1)
        assert journal.read()["file"] == "/mnt/by-hand"


def test_a_page_asks_for_no_backup_right_after_another_but_after_one_that_failed(tmp_path: Path):
    check_may_begin(tmp_path)
    journal = Journal(tmp_path / "run")
    with journal.begun(Path("/mnt/a")) as entry:
        with pytest.raises(Conflict, match="under way"):
            check_may_begin(tmp_path)
        entry.done({})
    with pytest.raises(Conflict, match="less than 10 minutes ago"):
        check_may_begin(tmp_path)
    journal.path.write_text(json.dumps(journal.read() | {"started_at": "2026-01-01T00:00:00Z"}))
    check_may_begin(tmp_path)
    with pytest.raises(OSError), journal.begun(Path("/mnt/b")):
        raise OSError("disk full")
    check_may_begin(tmp_path)


def test_a_page_asks_for_no_backup_where_enough_lie_already(tmp_path: Path):
    (tmp_path / "backups").mkdir()
    for number in range(MOST_KEPT):
        check_may_begin(tmp_path)
        (tmp_path / "backups" / f"strop-{number}.tar.zst").touch()
    with pytest.raises(Conflict, match="5 backups lie in the home already"):
        check_may_begin(tmp_path)
