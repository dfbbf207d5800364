"""Answers that want more than to be right. Each attack is first seen to work where nothing stops it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evals.scorers.sandbox.confinement import Limits
from evals.scorers.sandbox.host import Outcome, Sandbox

TESTS = {"function": "f", "cases": [{"args": [1], "expected": 3}, {"args": [5], "expected": 7}]}
ASSERTS = "assert f(1) == 3\nassert f(5) == 7\n"
QUICK = Limits(wall_s=2.0)

FORGERIES = {
    "exit with status 0": "import sys\ndef f(a): sys.exit(0)",
    "exit with status 0 while loading": "import os\nos._exit(0)",
    "leave at exit": "import atexit, os\natexit.register(lambda: os._exit(0))\ndef f(a): return None",
    "be equal to everything": "class A:\n    __eq__ = lambda self, other: True\ndef f(a): return A()",
    "be a number equal to everything": "class A(int):\n    __eq__ = lambda self, other: True\ndef f(a): return A(0)",
    "disarm assert": "import builtins, sys, os\nsys.excepthook = lambda *_: os._exit(0)\ndef f(a): return None",
    "return from an assertion that never fails": (
        "import unittest\n"
        "unittest.TestCase.assertEqual = lambda *_: None\n"
        "unittest.TestCase._callTestMethod = lambda *_: None\n"
        "def f(a): return None"
    ),
    "print the verdict": "print('2 passed: OK', flush=True)\nimport os\nos._exit(0)",
    "replace what compares": (
        "import builtins\n"
        "class int(int):\n"
        "    __eq__ = __ne__ = lambda self, other: True\n"
        "    __hash__ = None\n"
        "builtins.int = int\n"
        "def f(a): return int(0)"
    ),
    "read the tests": (
        "import sys, re\n"
        "source = open(sys._getframe().f_code.co_filename).read()\n"
        "answers = dict(re.findall(r'assert f\\((\\d+)\\) == (\\d+)', source))\n"
        "def f(a): return int(answers[str(a)])"
    ),
    "read the caller's frames": (
        "import sys\n"
        "def f(a):\n"
        "    frame = sys._getframe()\n"
        "    while frame:\n"
        "        for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):\n"
        "            if isinstance(value, dict) and 'expected' in value: return value['expected']\n"
        "            if isinstance(value, dict) and 'cases' in value:\n"
        "                return next(c['expected'] for c in value['cases'] if c['args'] == [a])\n"
        "        frame = frame.f_back\n"
    ),
    "search the heap": (
        "import gc\n"
        "def f(a):\n"
        "    for found in gc.get_objects():\n"
        "        if type(found) is dict and found.get('args') == [a] and 'expected' in found:\n"
        "            return found['expected']\n"
    ),
}


def naive_verdict(code: str, folder: Path) -> bool:
    """How a simple harness judges: answer and tests in one file, passed when the exit status is 0."""
    program = folder / "program.py"
    program.write_text(code + "\n" + ASSERTS)
    return subprocess.run([sys.executable, "-I", "-S", program], capture_output=True, timeout=20).returncode == 0


def in_process_verdict(code: str) -> bool:
    """The other simple harness: cases in the memory of the process that runs the answer."""
    program = (
        f"import json\ncases = json.loads({json.dumps(json.dumps(TESTS['cases']))})\nscope = {{}}\n"
        f"def judge():\n"
        f"    exec({code!r}, scope)\n"
        f"    for case in cases:\n"
        f"        assert scope['f'](*case['args']) == case['expected']\n"
        f"judge()"
    )
    return subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, timeout=20).returncode == 0


def printed_verdict(code: str, folder: Path) -> bool:
    """A third one: unittest in the answer's process, passed when the output ends in OK, as many tools read it."""
    program = folder / "printed.py"
    suite = "import unittest\nclass Tests(unittest.TestCase):\n    def test_f(self):\n"
    suite += "        self.assertEqual(f(1), 3)\n        self.assertEqual(f(5), 7)\n"
    program.write_text(f"{code}\n{suite}unittest.main()\n")
    shown = subprocess.run([sys.executable, "-I", program], capture_output=True, text=True, timeout=20)
    return (shown.stdout + shown.stderr).rstrip().endswith("OK")


@pytest.mark.parametrize("code", ["def f(a): return a + 2", "def f(a): return 0"], ids=["right", "wrong"])
def test_the_simple_harnesses_judge_honest_answers_rightly(code, tmp_path):
    is_right = "a + 2" in code
    verdicts = {naive_verdict(code, tmp_path), in_process_verdict(code), printed_verdict(code, tmp_path)}
    assert verdicts == {is_right}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_verdict_cannot_be_forged(name, sandbox, tmp_path):
    code = FORGERIES[name]
    is_fooled = naive_verdict(code, tmp_path) or in_process_verdict(code) or printed_verdict(code, tmp_path)
    assert is_fooled, "the attack does not work even without a sandbox"
    execution = sandbox.run(code, TESTS, limits=QUICK)
    assert execution.outcome in (Outcome.WRONG, Outcome.CRASH)


def verdict_on_an_inherited_pipe(code: str) -> str:
    """The careful simple harness: a pipe of its own for the verdict, whose other end the answer's process holds."""
    ours, theirs = os.pipe()
    judge = f"import os\nscope = {{}}\nexec({code!r}, scope)\nif scope['f'](1) == 3: os.write({theirs}, b'ok')"
    subprocess.run([sys.executable, "-I", "-S", "-c", judge], pass_fds=[theirs], capture_output=True, timeout=20)
    os.close(theirs)
    with open(ours, "rb") as pipe:
        return pipe.read().decode(errors="replace")


def test_a_fake_verdict_on_every_descriptor_is_not_heard(sandbox):
    shout = (
        "import os, json, struct\n"
        "body = json.dumps({'nonce': '', 'outcome': 'ok', 'detail': '', 'passed': 2, 'total': 2}).encode()\n"
        "for descriptor in range(64):\n"
        "    try: os.write(descriptor, struct.pack('!I', len(body)) + body)\n"
        "    except OSError: pass\n"
        "def f(a): return 0\n"
    )
    assert "ok" in verdict_on_an_inherited_pipe(shout), "the attack does not work even without a sandbox"
    assert sandbox.run(shout, TESTS, limits=QUICK).outcome is not Outcome.OK
    assert sandbox.run("def f(a): return a + 2", TESTS).outcome is Outcome.OK


def test_playing_the_harness_only_chooses_ones_own_return_values(sandbox):
    impostor = (
        "import os, json, struct, sys\n"
        "from evals.scorers.sandbox import wire\n"
        "frame = sys._getframe()\n"
        "while 'examiner' not in frame.f_locals: frame = frame.f_back\n"
        "channel = frame.f_locals['examiner']\n"
        "wire.send(channel, {'value': None})\n"
        "while (request := wire.receive(channel)): wire.send(channel, {'value': {'t': 'opaque', 'v': 'all'}})\n"
    )
    assert sandbox.run(impostor, TESTS, limits=QUICK).outcome is Outcome.WRONG


@pytest.mark.parametrize(
    "reply",
    ["b'\\xff\\xff\\xff\\xff'", "struct.pack('!I', 3) + b'[1]'", "struct.pack('!I', 200_000) + b'[' * 200_000",
     "struct.pack('!I', 40) + b'{'", "struct.pack('!I', 11) + b'{\"value\":{}'"],
)  # fmt: skip
def test_nonsense_on_the_wire_fails_the_answer_and_not_the_sandbox(reply, sandbox):
    code = (
        "import os, struct, sys\n"
        "frame = sys._getframe()\n"
        "while 'examiner' not in frame.f_locals: frame = frame.f_back\n"
        f"frame.f_locals['examiner'].sendall({reply})\n"
        "os._exit(0)"
    )
    execution = sandbox.run(code, TESTS, limits=QUICK)
    assert execution.outcome is Outcome.CRASH
    assert sandbox.run("def f(a): return a + 2", TESTS).outcome is Outcome.OK


def answers(value):
    return {"function": "f", "cases": [{"args": [], "expected": value}]}


@pytest.fixture(scope="module")
def seccomp_only():
    with Sandbox(level="zygote+seccomp") as sandbox:
        assert sandbox.level == "zygote+seccomp"
        yield sandbox


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


REACHES = {
    "read a file": "def f(): return open('/etc/passwd').read(4)[:4] == 'root'",
    "list a folder": "import os\ndef f(): return 'etc' in os.listdir('/')",
    "write a file": (
        "import os\n"
        "def f():\n"
        "    open('/tmp/strop-attack', 'w').close()\n"
        "    os.remove('/tmp/strop-attack')\n"
        "    return True"
    ),
    "write where it stands": (
        "import os\n"
        "def f():\n"
        "    open('/proc/self/cwd/x', 'w').close()\n"
        "    os.remove('/proc/self/cwd/x')\n"
        "    return True"
    ),
    "fork": (
        "import os\n"
        "def f():\n"
        "    child = os.fork()\n"
        "    if not child: os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "    return True"
    ),
    "run a program": "import subprocess\ndef f(): return subprocess.run(['/bin/true']).returncode == 0",
    "open a socket": "import socket\ndef f():\n    socket.socket().close()\n    return True",
    "make a pair of sockets": (
        "import socket\n"
        "def f():\n"
        "    [end.close() for end in socket.socketpair()]\n"
        "    return True"
    ),
    "signal its parent": "import os\ndef f():\n    os.kill(os.getppid(), 0)\n    return True",
    "signal by file descriptor": (
        "import os, signal\n"
        "def f():\n"
        "    signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 0)\n"
        "    return True"
    ),
    "read another's memory": "import os\ndef f(): return bool(open(f'/proc/{os.getppid()}/maps').read())",
    "trace its parent": (
        "import ctypes, os\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "def f(): return libc.ptrace(0x4206, os.getppid(), 0, 0) == 0"    # PTRACE_SEIZE
    ),
    "make memory files": "import os\ndef f():\n    os.close(os.memfd_create('x'))\n    return True",
    "make namespaces": "import ctypes\nlibc = ctypes.CDLL(None)\ndef f(): return libc.unshare(0x10000000) == 0",
    "have signals sent for it": (
        "import fcntl, os\n"
        "def f():\n"
        "    r, w = os.pipe()\n"
        "    fcntl.fcntl(r, fcntl.F_SETOWN, os.getppid())\n"
        "    return True"
    ),
    "change limits": (
        "import resource\n"
        "def f():\n"
        "    resource.prlimit(0, resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))\n"
        "    return True"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REACHES)
def test_nothing_outside_can_be_reached(name, bare, sandbox):
    if name == "make namespaces" and os.getuid() != 0:
        pytest.skip("needs the right to make user namespaces in the open")
    tries = (bare.run(REACHES[name], answers(True), limits=QUICK).outcome for _ in range(5))  # a parent has one tracer
    assert Outcome.OK in tries, "the attack is no attack"
    assert sandbox.run(REACHES[name], answers(True), limits=QUICK).outcome in (Outcome.WRONG, Outcome.CRASH)


def test_no_connection_to_a_listener_on_this_machine(listener, bare, sandbox):
    connect = (
        f"import socket\ndef f():\n    socket.create_connection(('127.0.0.1', {listener})).close()\n    return True"
    )
    assert bare.run(connect, answers(True), limits=QUICK).outcome is Outcome.OK
    assert sandbox.run(connect, answers(True), limits=QUICK).outcome is Outcome.WRONG


def test_the_environment_is_empty(sandbox, monkeypatch):
    look = "import os\ndef f(): return sorted(set(os.environ) - {'LC_CTYPE'})"
    monkeypatch.setenv("STROP_SECRET", "s3cret")
    shown = subprocess.run([sys.executable, "-I", "-S", "-c", look + "\nprint(f())"], capture_output=True, text=True)
    assert "STROP_SECRET" in shown.stdout
    assert sandbox.run(look, answers([])).outcome is Outcome.OK


def test_no_identity_is_left_when_we_are_root(sandbox):
    if os.getuid() != 0:
        pytest.skip("only root has an identity to give up")
    look = "import os\ndef f(): return [os.getuid(), os.geteuid(), os.getgid(), os.getgroups()]"
    assert sandbox.run(look, answers([65534, 65534, 65534, []])).outcome is Outcome.OK


def test_descriptors_of_the_zygote_are_closed(sandbox):
    look = (
        "import os\n"
        "def f():\n"
        "    n = 0\n"
        "    for d in range(3, 32):\n"
        "        try: os.fstat(d)\n"
        "        except OSError: continue\n"
        "        n += 1\n"
        "    return n"
    )
    inherited = os.pipe()
    plain = [sys.executable, "-I", "-S", "-c", look + "\nprint(f())"]
    assert subprocess.run(plain, pass_fds=inherited, capture_output=True, text=True).stdout == "2\n"
    for end in inherited:
        os.close(end)
    assert sandbox.run(look, answers(1)).outcome is Outcome.OK  # the socket to the examiner


def test_tests_and_earlier_answers_are_not_in_the_memory_of_an_answer(sandbox):
    marker = "mark" + "er-7f3a"
    sandbox.run(f"secret = {marker!r}\ndef f(): return secret", answers(marker))
    search = (
        "import gc\n"
        "def f():\n"
        "    needle = ''.join(['mark', 'er-7f3a'])\n"
        "    return any(needle in found for found in gc.get_objects() if isinstance(found, (list, tuple, dict)))"
    )
    shared = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"kept = [{marker!r}]\n{search}\nprint(f())"], capture_output=True, text=True
    )
    assert shared.stdout == "True\n", "the search finds nothing even in a process that has the marker"
    assert sandbox.run(search, answers(False)).outcome is Outcome.OK


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


RUNAWAY = (
    "import os, time, sys\n"
    "child = os.fork()\n"
    "if child == 0:\n"
    "    os.setsid()\n"
    "    if os.fork(): os._exit(0)\n"
    "    open({path!r}, 'w').write(str(os.getpid()))\n"
    "    time.sleep(60)\n"
    "    os._exit(0)\n"
    "time.sleep(60)\n"
)


def pid_written_to(path: Path) -> int:
    for _ in range(100):
        if path.exists() and path.read_text():
            return int(path.read_text())
        time.sleep(0.05)
    raise AssertionError("the runaway never started")


def test_a_child_in_a_session_of_its_own_is_found_and_killed(bare, tmp_path):
    escaped = tmp_path / "escaped"
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, "-c", RUNAWAY.format(path=str(escaped))], timeout=2)
    survivor = pid_written_to(escaped)
    assert alive(survivor), "a plain time-out kills the child too, so this proves nothing"
    os.kill(survivor, signal.SIGKILL)

    caught = tmp_path / "caught"
    execution = bare.run(RUNAWAY.format(path=str(caught)), None, limits=Limits(wall_s=1.5))
    assert execution.outcome is Outcome.TIMEOUT
    assert not alive(pid_written_to(caught))


def test_threads_work(sandbox):
    threads = (
        "import threading\n"
        "def f():\n"
        "    out = []\n"
        "    workers = [threading.Thread(target=out.append, args=(n,)) for n in range(4)]\n"
        "    [w.start() for w in workers]; [w.join() for w in workers]\n"
        "    return sorted(out)"
    )
    assert sandbox.run(threads, answers([0, 1, 2, 3])).outcome is Outcome.OK


WAYS_OUT = {
    "kill itself": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "abort": "import os\nos.abort()",
    "close everything": "import os\nfor d in range(64):\n    try: os.close(d)\n    except OSError: pass",
    "give up its memory": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1, 1))",
    "run out of memory": "raise MemoryError",
    "run out of memory later": "def f(a): raise MemoryError",
    "return what cannot be shown": "def f(a): return 10 ** 5000",
    "raise what cannot be shown": "def f(a): raise KeyError(10 ** 5000)",
    "return what cannot be sent": "def f(a): return f",
    "return what is too large": "def f(a): return 'x' * 5_000_000",
    "return what is too deep": "def f(a):\n    v = []\n    for _ in range(59): v = [v]\n    return v",
    "return what is slow to compare": "def f(a): return {n * (2**61 - 1) for n in range(60_000)}",
    "raise what is ours": "class Unsupported(BaseException): pass\ndef f(a): raise Unsupported",
}


@pytest.mark.parametrize("tests", [TESTS, {"function": "f", "code": "assert f([f(1)]) == 3\nassert f(5) == 7"}])
@pytest.mark.parametrize("name", WAYS_OUT)
def test_an_answer_cannot_choose_to_be_masked(name, tests, sandbox):
    execution = sandbox.run(WAYS_OUT[name], tests, limits=Limits(wall_s=4.0, cpu_s=1))
    assert execution.outcome.is_scored, execution
    assert execution.outcome is not Outcome.OK


def test_an_answer_that_can_kill_the_sandbox_gains_nothing_by_it():
    with Sandbox(level="none", allow_none=True) as bare:
        execution = bare.run("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nwhile True: pass", None)
        assert execution.outcome is Outcome.CRASH
        assert bare.run("x = 1", None).outcome is Outcome.OK


NEEDS_LANDLOCK = {"read a file", "list a folder", "read another's memory"}


@pytest.mark.parametrize("name", sorted(REACHES.keys() - NEEDS_LANDLOCK))
def test_without_landlock_only_reading_is_left(name, seccomp_only):
    assert seccomp_only.run(REACHES[name], answers(True), limits=QUICK).outcome in (Outcome.WRONG, Outcome.CRASH)


@pytest.mark.parametrize("name", REACHES)
def test_bubblewrap_confines_too(name, bwrap):
    assert bwrap.level == "bwrap"
    assert bwrap.run(REACHES[name], answers(True), limits=QUICK).outcome in (Outcome.WRONG, Outcome.CRASH)
