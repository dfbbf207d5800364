"""What the sandbox answers about ordinary outputs, good and bad, and about its own failures."""

import os
import signal
import threading
import time

import pytest

from evals.scorers.sandbox.confinement import Limits
from evals.scorers.sandbox.host import LEVELS, Outcome, Sandbox, SandboxUnavailable

ADD_TWO = {"function": "f", "cases": [{"args": [1], "expected": 3}, {"args": [2], "expected": 4}]}
QUICK = Limits(wall_s=1.0, cpu_s=2)
RIGHT = "def f(a):\n    return a + 2"


def test_a_right_answer_is_ok_and_says_where_it_ran(sandbox):
    execution = sandbox.run(RIGHT, ADD_TWO)
    assert (execution.outcome, execution.passed, execution.total) == (Outcome.OK, 2, 2)
    assert execution.level == sandbox.level


def test_this_machine_confines_fully(sandbox):
    assert LEVELS.index(sandbox.level) >= LEVELS.index("zygote+seccomp")


def test_a_wrong_answer_names_the_first_failing_case(sandbox):
    execution = sandbox.run("def f(a):\n    return 3", ADD_TWO)
    assert (execution.outcome, execution.passed) == (Outcome.WRONG, 1)
    assert execution.detail == "f(2) returned 3, expected 4"


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("def f(a):\n    return a +", Outcome.CRASH),
        ("1 / 0", Outcome.CRASH),
        ("def g(a):\n    return a + 2", Outcome.WRONG),
        ("def f(a):\n    raise ValueError('no')", Outcome.WRONG),
        ("def f(a):\n    return f(a)", Outcome.WRONG),
        ("def f(a):\n    return object()", Outcome.WRONG),
        ("def f(a):\n    return 'x' * 5_000_000", Outcome.WRONG),
        ("def f(a):\n    return iter(int, 1)", Outcome.WRONG),
        ("def f(a):\n    while True: pass", Outcome.TIMEOUT),
        ("import time\ntime.sleep(60)", Outcome.TIMEOUT),
        ("def f(a):\n    return 'x' * 10**10", Outcome.OOM),
        ("import ctypes\nctypes.string_at(0)", Outcome.CRASH),
    ],
)
def test_every_way_to_fail_has_its_name_and_counts(sandbox, code, outcome):
    execution = sandbox.run(code, ADD_TWO, limits=QUICK)
    assert execution.outcome is outcome
    assert execution.outcome.is_scored


def test_without_tests_loading_is_all_that_is_asked(sandbox):
    assert sandbox.run("x = 1", None).outcome is Outcome.OK
    assert sandbox.run("x = y", None).outcome is Outcome.CRASH


def test_cases_may_expect_an_exception(sandbox):
    tests = {"function": "f", "cases": [{"args": [0], "raises": "ZeroDivisionError"}]}
    assert sandbox.run("def f(a):\n    return 1 / a", tests).outcome is Outcome.OK
    assert sandbox.run("def f(a):\n    return 0", tests).outcome is Outcome.WRONG


def test_tests_may_be_code_and_each_assert_is_a_case(sandbox):
    code = "import math\nassert f(1) == 3\nassert f(2) == 5\nassert math.isclose(f(.5), 2.5)"
    tests = {"function": "f", "code": code}
    execution = sandbox.run(RIGHT, tests)
    assert (execution.outcome, execution.passed, execution.total) == (Outcome.WRONG, 2, 3)
    assert execution.detail == "assert f(2) == 5: AssertionError"


def test_a_check_function_as_in_humaneval_is_called(sandbox):
    check = "def check(candidate):\n    assert candidate(1) == 3\n    assert candidate(0) == 2"
    tests = {"function": "f", "code": check}
    assert sandbox.run(RIGHT, tests).outcome is Outcome.OK
    assert sandbox.run("def f(a):\n    return 3", tests).outcome is Outcome.WRONG


def test_helpers_of_the_tests_are_ours_and_not_the_answers(sandbox):
    setup = "def double(a):\n    return 2 * a\ndef f(a):\n    return None"
    tests = {"function": "f", "setup": setup, "code": "assert f(1) == double(1) + 1"}
    assert sandbox.run(RIGHT, tests).outcome is Outcome.OK
    assert sandbox.run("def double(a): return 0\ndef f(a): return 1", tests).outcome is Outcome.WRONG


def test_tests_that_pass_a_function_cannot_be_run_here_and_are_no_zero(sandbox):
    execution = sandbox.run("def f(g):\n    return g(1)", {"function": "f", "code": "assert f(lambda x: x) == 1"})
    assert execution.outcome is Outcome.UNSUPPORTED
    assert not execution.outcome.is_scored


@pytest.mark.parametrize(
    "tests",
    [
        {},
        {"function": "f"},
        {"cases": []},
        {"function": "f", "cases": []},
        {"function": "f", "cases": [{}]},
        {"function": "f", "cases": [{"args": {"t": "?", "v": 1}, "expected": 1}]},
        {"function": "f", "code": "assert ("},
        {"function": "f", "code": 3},
    ],
)
def test_malformed_tests_are_the_benchmarks_fault_and_no_zero(sandbox, tests):
    assert sandbox.run(RIGHT, tests).outcome is Outcome.UNSUPPORTED


def test_asserts_in_loops_and_test_functions_count_as_cases(sandbox):
    code = "for n in range(3):\n    assert f(n) == n + 2\ndef test_more():\n    assert f(5) == 7"
    execution = sandbox.run(RIGHT, {"function": "f", "code": code})
    assert (execution.outcome, execution.passed, execution.total) == (Outcome.OK, 2, 2)


def test_a_setup_that_fails_is_the_benchmarks_fault(sandbox):
    tests = {"function": "f", "setup": "1 / 0", "code": "assert f(1) == 3"}
    assert sandbox.run(RIGHT, tests).outcome is Outcome.UNSUPPORTED


@pytest.mark.parametrize("code", ["f(1)", "assert True, 'it got here'", "assert 1 == 1.0"])
def test_tests_that_assert_nothing_of_the_answer_prove_nothing(code, sandbox):
    assert sandbox.run(RIGHT, {"function": "f", "code": code}).outcome is Outcome.UNSUPPORTED


def test_an_assert_that_always_holds_is_no_case(sandbox):
    execution = sandbox.run(RIGHT, {"function": "f", "code": "assert True\nassert f(1) == 3"})
    assert (execution.outcome, execution.results) == (Outcome.OK, "1")


def test_each_assert_of_a_check_function_is_a_case(sandbox):
    check = "def check(candidate):\n    assert candidate(1) == 3\n    n = candidate(0)\n    assert n == 2, 'zero'\n"
    tests = {"function": "f", "code": check + "    assert candidate(5) == 7\ncheck(f)"}
    assert sandbox.run(RIGHT, tests).results == "111"
    assert sandbox.run("def f(a):\n    return 3", tests).results == "100"


def test_a_check_function_that_returns_is_one_case(sandbox):
    tests = {"function": "f", "code": "def check(g):\n    assert g(1) == 3\n    return\n    assert g(0) == 9"}
    assert sandbox.run(RIGHT, tests).results == "1"


def test_what_an_answer_prints_is_kept_up_to_a_limit(sandbox):
    chatty = "print('hello')\nfor _ in range(200): print('x' * 10_000)\n" + RIGHT
    execution = sandbox.run(chatty, ADD_TWO)
    assert execution.outcome is Outcome.OK
    assert execution.output.startswith("hello\nxxx") and len(execution.output) == Limits().output_bytes


def test_runs_do_not_see_each_other(sandbox):
    sandbox.run("import math\nmath.pi = 3\nimport builtins\nbuiltins.left_behind = 1", None)
    after = "import math\ndef f(a):\n    return math.pi > 3.1 and 'left_behind' not in dir(__builtins__)"
    assert sandbox.run(after, {"function": "f", "cases": [{"args": [0], "expected": True}]}).outcome is Outcome.OK


def test_randomness_repeats(sandbox):
    code = "import random\ndef f(a):\n    return random.random()"
    tests = {"function": "f", "cases": [{"args": [0], "expected": 0.8444218515250481}]}  # random.seed(0)
    assert sandbox.run(code, tests).outcome is Outcome.OK


def zygote_pid(sandbox):
    sandbox.run("x = 1", None)
    return sandbox._zygote.pid


def test_a_killed_zygote_is_a_fault_and_is_replaced():
    with Sandbox() as sandbox:
        os.kill(zygote_pid(sandbox), signal.SIGKILL)
        assert sandbox.run(RIGHT, ADD_TWO).outcome is Outcome.SANDBOX_FAULT
        assert sandbox.run(RIGHT, ADD_TWO).outcome is Outcome.OK


def test_a_zygote_killed_in_the_middle_of_a_run_is_a_fault_and_never_a_zero():
    with Sandbox() as sandbox:
        pid = zygote_pid(sandbox)
        threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
        execution = sandbox.run("import time\ntime.sleep(30)", None, limits=Limits(wall_s=20))
        assert execution.outcome is Outcome.SANDBOX_FAULT
        assert not execution.outcome.is_scored


def test_closing_ends_the_zygote():
    sandbox = Sandbox()
    pid = zygote_pid(sandbox)
    sandbox.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_forked_worker_gets_a_zygote_of_its_own(sandbox):
    sandbox.run("x = 1", None)
    child = os.fork()
    if child == 0:
        with Sandbox() as _:
            execution = sandbox.run(RIGHT, ADD_TWO)
            sandbox.close()
            os._exit(0 if execution.outcome is Outcome.OK else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sandbox.run(RIGHT, ADD_TWO).outcome is Outcome.OK


def test_several_threads_may_share_a_sandbox(sandbox):
    outcomes = []
    work = lambda n: outcomes.append((n, sandbox.run(f"def f(a):\n    return a + {n}", ADD_TWO).outcome))  # noqa: E731
    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [(n, Outcome.OK if n == 2 else Outcome.WRONG) for n in range(6)]


def test_running_unconfined_is_refused_unless_allowed():
    with pytest.raises(SandboxUnavailable, match="unconfined"), Sandbox(level="none") as sandbox:
        sandbox.run("x = 1", None)


def test_the_deadline_is_kept(sandbox):
    started = time.monotonic()
    sandbox.run("while True: pass", None, limits=Limits(wall_s=0.5))
    assert time.monotonic() - started < 2.5
