"""Answers that take more than their share: memory, disk, time, processes, threads, descriptors, output.

Each attack is first seen to work in a plain interpreter, so that what stops it in the sandbox is the sandbox.
"""

import subprocess
import sys
import time
from dataclasses import replace

import pytest

from evals.scorers.sandbox.confinement import Limits
from evals.scorers.sandbox.host import Outcome, Sandbox

TRUE = {"function": "f", "cases": [{"args": [], "expected": True}]}
QUICK = Limits(wall_s=2.0)
GRACE_S = 2.0  # after the deadline, to kill, reap and report


def in_the_open(code: str, *, timeout_s: float = 20.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=timeout_s, check=False
    )


def works_in_the_open(code: str) -> bool:
    return in_the_open(f"{code}\nprint(f())").stdout.splitlines()[-1:] == ["True"]


TAKES = {
    "2 GB of memory": ("def f(): return len(bytearray(2 * 10**9)) == 2 * 10**9", Outcome.OOM),
    "memory in small pieces": (
        "def f(): return sum(map(len, [bytes(1000) for _ in range(700_000)])) > 10**8",
        Outcome.OOM,
    ),
    "300 processes": (
        "import os\n"
        "def f():\n"
        "    children = []\n"
        "    for _ in range(300):\n"
        "        child = os.fork()\n"
        "        if child == 0:\n"
        "            os._exit(0)\n"
        "        children.append(child)\n"
        "    return sum(os.waitpid(child, 0)[0] == child for child in children) == 300",
        Outcome.WRONG,
    ),
    "500 threads": (
        "import threading\n"
        "def f():\n"
        "    gate = threading.Event()\n"
        "    threads = [threading.Thread(target=gate.wait, daemon=True) for _ in range(500)]\n"
        "    try:\n"
        "        for thread in threads: thread.start()\n"
        "    finally:\n"
        "        gate.set()\n"
        "    return True",
        Outcome.WRONG,
    ),
    "200 descriptors": (
        "import os\ndef f(): return len([os.dup(0) for _ in range(200)]) == 200",
        Outcome.WRONG,
    ),
}


@pytest.mark.parametrize("name", TAKES)
def test_an_answer_cannot_take(name, sandbox):
    code, outcome = TAKES[name]
    assert works_in_the_open(code), "the attack does not work even without a sandbox"
    execution = sandbox.run(code, TRUE, limits=QUICK)
    assert execution.outcome is outcome, execution


def file_of_20_mb(path: str) -> str:
    return (
        f"def f():\n    with open({path!r}, 'wb') as file:\n        return file.write(bytes(20_000_000)) == 20_000_000"
    )


def test_an_answer_cannot_fill_the_disk(sandbox, tmp_path):
    (tmp_path / "open").mkdir(mode=0o777)
    assert works_in_the_open(file_of_20_mb(str(tmp_path / "open" / "large")))
    execution = sandbox.run(file_of_20_mb(str(tmp_path / "open" / "second")), TRUE, limits=QUICK)
    assert (execution.outcome, "Permission" in execution.detail) == (Outcome.WRONG, True)
    assert not (tmp_path / "open" / "second").exists()


def test_where_files_can_be_written_they_stay_small(bare, tmp_path):
    assert works_in_the_open(file_of_20_mb(str(tmp_path / "large")))
    execution = bare.run(file_of_20_mb(str(tmp_path / "small")), TRUE, limits=QUICK)
    assert (execution.outcome, "File too large" in execution.detail) == (Outcome.WRONG, True)
    assert (tmp_path / "small").stat().st_size <= QUICK.file_bytes


ENDLESS = {
    "a loop": ("while True: pass", Limits(wall_s=1.0, cpu_s=20)),
    "a loop, stopped by its CPU time": ("while True: pass", Limits(wall_s=20.0, cpu_s=1)),
    "sleep": ("import time\ntime.sleep(60)", Limits(wall_s=1.0)),
    "a call that holds the interpreter": ("sum(range(10**12))", Limits(wall_s=1.0, cpu_s=20)),
    "a pattern that backtracks": ("import re\nre.match('(a+)+b', 'a' * 60)", Limits(wall_s=1.0, cpu_s=20)),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_an_answer_cannot_run_for_ever(name, sandbox):
    code, limits = ENDLESS[name]
    with pytest.raises(subprocess.TimeoutExpired):
        in_the_open(code, timeout_s=1.5)
    started = time.monotonic()
    execution = sandbox.run(code, None, limits=limits)
    assert execution.outcome is Outcome.TIMEOUT
    # CPU time passes slowly on a busy machine, but it ends a loop long before this deadline.
    allowed_s = limits.wall_s + GRACE_S if limits.cpu_s > 1 else limits.wall_s / 2
    assert time.monotonic() - started < allowed_s


def test_an_answer_that_ignores_the_wish_to_end_ends_all_the_same(sandbox):
    stubborn = (
        "import signal\n"
        "for number in range(1, 32):\n"
        "    try: signal.signal(number, signal.SIG_IGN)\n"
        "    except OSError: pass\n"
        "print('deaf', flush=True)\n"
        "while True: pass"
    )
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", stubborn], stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None and process.stdout.readline() == b"deaf\n"
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.kill()
    assert sandbox.run(stubborn, None, limits=Limits(wall_s=0.5)).outcome is Outcome.TIMEOUT


def test_a_child_that_holds_the_output_does_not_hold_us(bare):
    holder = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(4)\n    os._exit(0)\ntime.sleep(60)"
    started = time.monotonic()
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", holder], stdout=subprocess.PIPE) as leader:
        assert leader.stdout is not None
        with pytest.raises(subprocess.TimeoutExpired):
            leader.wait(0.5)
        leader.kill()
        leader.stdout.read()  # the plain harness: the leader is dead, and this waits for the child
    assert time.monotonic() - started > 3
    started = time.monotonic()
    assert bare.run(holder, None, limits=Limits(wall_s=0.5)).outcome is Outcome.TIMEOUT
    assert time.monotonic() - started < 0.5 + GRACE_S


def test_what_an_answer_prints_is_read_and_thrown_away_past_a_limit(sandbox):
    chatty = "for _ in range(500): print('x' * 9_999)\ndef f(): return True"
    assert len(in_the_open(chatty).stdout) == 5_000_000
    execution = sandbox.run(chatty, TRUE, limits=replace(QUICK, output_bytes=100))
    assert (execution.outcome, execution.output) == (Outcome.OK, "x" * 100)


def test_the_limits_hold_in_bubblewrap_too(bwrap):
    for name, (code, outcome) in TAKES.items():
        assert bwrap.run(code, TRUE, limits=QUICK).outcome is outcome, name


def test_one_answers_excess_leaves_the_next_one_alone(sandbox: Sandbox):
    for code, _ in TAKES.values():
        sandbox.run(code, TRUE, limits=QUICK)
        assert sandbox.run("def f(): return True", TRUE).outcome is Outcome.OK
