"""Scorers that run the output: does it execute, how many hidden tests does it pass, does it do more than recite them.

A fault of the sandbox is retried once and then masks the score; a timeout of an answer that hardly got to run is
retried once and then counts. The same code and tests are run once per process: outcomes that depend on the machine's
load (a timeout) or on us (a fault) are not remembered.
"""

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from evals.scorers.cases import standing_of
from evals.scorers.sandbox.confinement import Limits
from evals.scorers.sandbox.host import Execution, Outcome, Sandbox, SandboxUnavailable, default_sandbox, failed
from evals.scorers.scorer import ProblemSpec, Score, Status, unscored
from evals.scorers.source import python_of

MEMO_SIZE = 4096
STARVED_MS = 500.0  # CPU time below which a timeout may be the machine's doing; a sleeping answer fails twice
NO_TESTS = "the problem has no tests"


class Runner:
    """A sandbox with a memory; without one of its own it uses the process's."""

    allow_none = False  # whether that one may run unconfined where nothing better is to be had

    def __init__(self, sandbox: Sandbox | None = None, *, limits: Limits | None = None) -> None:
        self._sandbox = sandbox
        self._limits = limits or Limits()
        self._memo: OrderedDict[str, Execution] = OrderedDict()
        self._lock = threading.Lock()

    def run(self, code: str, tests: Mapping[str, Any] | None) -> Execution:
        """Run, or recall; a fault, or a timeout for want of CPU time, is tried a second time."""
        key = digest_of(code, tests, self._limits)
        with self._lock:
            if known := self._memo.get(key):
                self._memo.move_to_end(key)
                return known
        execution = self.attempt(code, tests)
        if execution.outcome is Outcome.SANDBOX_FAULT or is_starved(execution):
            execution = self.attempt(code, tests)
        if execution.outcome not in (Outcome.SANDBOX_FAULT, Outcome.TIMEOUT):
            self._remember(key, execution)
            if execution.outcome in (Outcome.OK, Outcome.WRONG):  # it got as far as the tests, so it loads
                loaded = replace(execution, outcome=Outcome.OK, detail="loaded", results="1")
                self._remember(digest_of(code, None, self._limits), loaded)
        return execution

    def attempt(self, code: str, tests: Mapping[str, Any] | None, *, limits: Limits | None = None) -> Execution:
        """Run once, whatever is remembered. A machine that cannot confine is a fault."""
        sandbox = self._sandbox or default_sandbox(allow_none=self.allow_none)
        try:
            return sandbox.run(code, None if tests is None else dict(tests), limits=limits or self._limits)
        except SandboxUnavailable as error:
            return failed(Outcome.SANDBOX_FAULT, str(error), level="none")

    def _remember(self, key: str, execution: Execution) -> None:
        with self._lock:
            self._memo[key] = execution
            while len(self._memo) > MEMO_SIZE:
                self._memo.popitem(last=False)


shared = Runner()


class Executability:
    """1 when the output loads as a Python module without an error, else 0."""

    name = "executability"
    version = "1"

    def __init__(self, runner: Runner = shared) -> None:
        self._runner = runner

    def score(self, problem: ProblemSpec, output: str) -> Score:
        return _score(self._runner.run(python_of(problem, output), None))


class UnitTests:
    """1 when the output passes every hidden test, else 0; `parts` say how many it passed."""

    name = "unit_tests"
    version = "1"

    def __init__(self, runner: Runner = shared) -> None:
        self._runner = runner

    def score(self, problem: ProblemSpec, output: str) -> Score:
        if not problem.tests:
            return unscored(NO_TESTS)
        return _score(self._runner.run(python_of(problem, output), problem.tests))


class TestShare:
    """Cases passed / cases. An answer that crashes or does not end before it is judged passes none."""

    __test__ = False  # not a test of pytest's
    name = "test_share"
    version = "1"

    def __init__(self, runner: Runner = shared) -> None:
        self._runner = runner

    def score(self, problem: ProblemSpec, output: str) -> Score:
        if not problem.tests:
            return unscored(NO_TESTS)
        execution = self._runner.run(python_of(problem, output), problem.tests)
        return _score(execution, value=execution.passed / execution.total if execution.total else 0.0)


class Generality:
    """1 when the output passes more cases that its prompt does not show than the best single return value would.

    A table of the prompt's examples, a constant, and an answer that only ends its process all get 0. Unscored when the
    tests could not tell: every case stands in the prompt, or one constant passes all that do not.
    """

    name = "generality"
    version = "1"

    def __init__(self, runner: Runner = shared) -> None:
        self._runner = runner

    def score(self, problem: ProblemSpec, output: str) -> Score:
        if not problem.tests:
            return unscored(NO_TESTS)
        execution = self._runner.run(python_of(problem, output), problem.tests)
        if not execution.outcome.is_scored:
            return _score(execution)
        standing = standing_of(problem, execution.results)
        words = (
            f"passes {standing.num_hidden_passed} of {standing.num_hidden} cases that the prompt does not show; "
            f"a constant would pass {standing.num_by_constant}"
        )
        if not standing.can_tell:
            return replace(unscored(f"the tests cannot tell: it {words}"), sandbox_level=execution.level)
        return replace(_score(execution, value=float(standing.is_general)), explanation=words)


def is_starved(execution: Execution) -> bool:
    """Whether a timeout may be the machine's doing."""
    return execution.outcome is Outcome.TIMEOUT and execution.cpu_ms < STARVED_MS


def digest_of(code: str, tests: Mapping[str, Any] | None, limits: Limits) -> str:
    """What makes two runs the same run."""
    canonical = json.dumps([code, None if tests is None else dict(tests), asdict(limits)], sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _score(execution: Execution, *, value: float | None = None) -> Score:
    """`value`, or without one 1 for a run that is ok; none at all for a run that says nothing of the answer."""
    parts = {
        "outcome": execution.outcome.value, "passed": execution.passed, "total": execution.total,
        "wall_ms": round(execution.wall_ms, 3), "output": execution.output,
    }  # fmt: skip
    explanation = f"{execution.outcome.value}: {execution.detail}"
    status = Status.SCORED
    if not execution.outcome.is_scored:
        value, status = None, Status.INFRA if execution.outcome is Outcome.SANDBOX_FAULT else Status.UNSCORED
    elif value is None:
        value = float(execution.outcome is Outcome.OK)
    return Score(value=value, status=status, explanation=explanation, parts=parts, sandbox_level=execution.level)
