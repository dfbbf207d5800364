"""The supervisor with small programs in place of the product's, in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from strop.home import Home
from strop.local.lock import is_locked, read_state

SCRIPT = """
import sys
from pathlib import Path
from strop.home import Home
from strop.local.lock import locked
from strop.local.service import Service
from strop.local import service
from strop.local.supervisor import Supervisor

service.HEALTH_EVERY_S = 0.05
home = Home(Path(sys.argv[1]))


def is_healthy():
    return not (home.root / "sick").exists()


with locked(home) as descriptor:
    supervisor = Supervisor(home, url="http://example", lock_descriptor=descriptor)
    try:
        for name, rank, code in {programs!r}:
            command = [sys.executable, "-c", code]
            what = Service(
                name=name, command=command, stop_rank=rank, stop_s={patience_s}, is_healthy=is_healthy
            )
            supervisor.start(what)
        print("STARTED", flush=True)
        supervisor.run()
    finally:
        supervisor.stop()
"""
SLEEP = "import time; print('up', flush=True); time.sleep(600)"
FAMILY = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
NEW_SESSION = (
    "import subprocess, sys; "
    "subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)"
)
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """supervise(("name", stop rank, program), ...) -> the running supervisor's process."""
    started = []

    def start(*programs: tuple[str, int, str], patience_s: float = 1) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT.format(programs=programs, patience_s=patience_s), tmp_path],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "STARTED\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
    until(lambda: not is_locked(Home(tmp_path)))


def until(fact: Callable[[], object], timeout_s: float = 60) -> object:
    deadline = time.monotonic() + timeout_s
    while not (found := fact()):
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)
    return found


def pid_of(home: Path, name: str) -> int | None:
    return next((row["pid"] for row in read_state(Home(home)).get("processes", []) if row["name"] == name), None)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_killed_program_is_started_again_and_counted(supervise, tmp_path: Path):
    supervise(("a", 0, SLEEP))
    first = until(lambda: pid_of(tmp_path, "a"))
    os.kill(first, signal.SIGKILL)
    second = until(lambda: (pid := pid_of(tmp_path, "a")) and pid != first and pid)
    assert is_running(second)
    assert read_state(Home(tmp_path))["processes"][0]["restarts"] == 1


def test_a_program_that_lives_and_does_not_move_is_started_again(supervise, tmp_path: Path):
    supervise(("a", 0, SLEEP))
    first = until(lambda: pid_of(tmp_path, "a"))
    (tmp_path / "sick").touch()
    until(lambda: pid_of(tmp_path, "a") != first)
    (tmp_path / "sick").unlink()
    assert not is_running(first)
    assert "a lives but does not move" in (tmp_path / "logs" / "strop.log").read_text()


def test_a_program_that_always_fails_is_started_less_and_less_often(supervise, tmp_path: Path):
    supervise(("a", 0, "print('once'); raise SystemExit(3)"))
    log = tmp_path / "logs" / "strop.log"
    until(lambda: log.read_text().count("ended with status 3") >= 3)
    waits = [line.split()[-2] for line in log.read_text().splitlines() if "ended with status 3" in line]
    assert waits[:3] == ["0.5", "1", "2"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_ends_everything_in_order_and_exits_with_zero(supervise, tmp_path: Path, number: signal.Signals):
    marks = tmp_path / "marks"
    note = (
        "import signal, sys, time\n"
        "def end(*_):\n"
        f"    open({str(marks)!r}, 'a').write({{name!r}})\n"
        "    sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\nprint('up', flush=True)\ntime.sleep(600)"
    )
    supervisor = supervise(("a", 0, note.format(name="a")), ("b", 1, note.format(name="b")))
    until(lambda: all((tmp_path / "logs" / f"{name}.log").read_text() for name in "ab"))
    supervisor.send_signal(number)
    assert supervisor.wait(30) == 0
    assert marks.read_text() == "ba"
    assert read_state(Home(tmp_path))["running"] is False


def test_a_program_that_ignores_the_signal_is_killed_after_its_patience(supervise, tmp_path: Path):
    supervisor = supervise(("a", 0, STUBBORN))
    until(lambda: (tmp_path / "logs" / "a.log").read_text())
    pid = pid_of(tmp_path, "a")
    asked_at = time.monotonic()
    supervisor.terminate()
    assert supervisor.wait(30) == 0
    assert time.monotonic() - asked_at >= 1
    assert not is_running(pid)


def test_the_same_signal_twice_at_once_is_one_wish(supervise, tmp_path: Path):
    supervisor = supervise(("a", 0, STUBBORN))
    until(lambda: (tmp_path / "logs" / "a.log").read_text())
    asked_at = time.monotonic()
    supervisor.terminate()
    time.sleep(0.1)
    supervisor.terminate()
    assert supervisor.wait(30) == 0
    assert time.monotonic() - asked_at >= 1


def test_a_second_signal_later_on_kills_at_once(supervise, tmp_path: Path):
    supervisor = supervise(("a", 0, STUBBORN), patience_s=60)
    until(lambda: (tmp_path / "logs" / "a.log").read_text())
    supervisor.terminate()
    time.sleep(1.2)
    supervisor.terminate()
    assert supervisor.wait(30) == 0


def test_nothing_is_left_when_the_supervisor_itself_is_killed(supervise, tmp_path: Path):
    supervisor = supervise(("a", 0, FAMILY), ("b", 0, NEW_SESSION))
    parents = [until(lambda name=name: pid_of(tmp_path, name)) for name in "ab"]
    family = [*parents, *(until(lambda pid=pid: children_of(pid))[0] for pid in parents)]
    supervisor.kill()
    supervisor.wait()
    until(lambda: not any(is_running(pid) for pid in family))
    until(lambda: not is_locked(Home(tmp_path)))


def test_a_second_supervisor_of_the_home_says_who_has_it(supervise, tmp_path: Path):
    first = supervise(("a", 0, SLEEP))
    until(lambda: pid_of(tmp_path, "a"))
    second = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(programs=(), patience_s=1), tmp_path],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert second.returncode == 1
    assert f"Strop is already running on {tmp_path}, pid {first.pid}, at http://example" in second.stderr


def test_the_state_file_is_whole_json_at_any_time(supervise, tmp_path: Path):
    supervise(("a", 0, "raise SystemExit(1)"), ("b", 0, "raise SystemExit(1)"))
    for _ in range(200):
        json.loads((tmp_path / "run" / "state.json").read_text())
        time.sleep(0.005)
