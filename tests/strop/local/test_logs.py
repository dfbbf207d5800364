import io
from pathlib import Path

import pytest

from strop.local import logs
from strop.local.logs import Log


def test_lines_are_prefixed_on_the_terminal_and_plain_in_the_file(tmp_path: Path):
    terminal = io.StringIO()
    log = Log("web", folder=tmp_path, terminal=terminal)
    log.feed(b"one\ntw")
    log.feed(b"o\nthree")
    log.close()
    assert terminal.getvalue() == "     web | one\n     web | two\n     web | three\n"
    assert log.path.read_text() == "one\ntwo\nthree\n"


def test_a_line_without_end_is_cut_so_that_memory_stays_bounded(tmp_path: Path):
    log = Log("web", folder=tmp_path)
    log.feed(b"x" * (2 * logs.MAX_LINE + 1))
    log.close()
    assert [len(line) for line in log.path.read_text().splitlines()] == [logs.MAX_LINE, logs.MAX_LINE, 1]


def test_files_are_rotated_by_size_and_the_oldest_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(logs, "MAX_BYTES", 3)
    log = Log("web", folder=tmp_path)
    for number in range(6):
        log.say(f"line {number}")
    log.close()
    kept = {path.name: path.read_text().strip() for path in tmp_path.iterdir()}
    assert kept == {"web.log": "", "web.log.1": "line 5", "web.log.2": "line 4", "web.log.3": "line 3"}


def test_bytes_that_are_no_text_do_not_stop_the_log(tmp_path: Path):
    terminal = io.StringIO()
    log = Log("web", folder=tmp_path, terminal=terminal)
    log.feed(b"\xff\n")
    log.close()
    assert log.path.read_bytes() == b"\xff\n"
    assert terminal.getvalue() == "     web | �\n"
