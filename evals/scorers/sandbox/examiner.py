"""The process that knows the tests: it has the answer's functions called elsewhere and compares what comes back.

An answer's values arrive as plain data, so `==` here is Python's own. It is confined like the answer, because tests of
imported benchmarks are not ours either, and it is the only process besides the host that holds the verdict's socket.

Tests are {"function": name, "cases": [{"args", "kwargs", "expected" or "raises"}]} or {"function": name, "code":
source}, in which that function, also called `candidate`, is callable; every top-level `assert` counts as one case, as
does every one in the body of a function `check(candidate)`. `setup` is source of ours to run before `code`, for helpers
the tests need. {"function": name, "make": source, "sizes": [n, ...]} measures instead: `make(n)` gives the arguments of
one call, whose CPU time is read from outside. None loads the answer and asks nothing.
"""

import ast
import builtins
import hashlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from evals.scorers.sandbox.codec import MAX_DEPTH, NotData, NotPlain, decode, encode
from evals.scorers.sandbox.wire import BadFrame, receive, send

Verdict = dict[str, Any]  # {"outcome", "detail", "results": "1" or "0" for each case, "load_cpu_s", "calls"}
WAITING, GO = {"waiting": True}, {"go": True}  # of a timed call
EXACT = 10**15  # floats below it hold every whole number
ENOUGH_S = 0.5  # CPU time of a call after which no larger size is asked
MAX_DETAIL = 1000  # characters
OUR_DEPTH = 4 * MAX_DEPTH  # of what we send: a test may wrap what the answer returned


class AnswerGone(BaseException):
    """The answer's process ended or spoke nonsense. Not an Exception: a test must not catch it."""


class OutOfMemory(BaseException):
    """The answer ran out of memory while loading or in a call."""


class Unsupported(BaseException):
    """A test that this sandbox cannot express, e.g. one that passes a function to the answer."""


class AnswerError(Exception):
    """An exception of the answer whose class is not a built-in one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timed:
    """A result and what it cost, in CPU time of the answer's process."""

    value: Any
    cpu_s: float  # of the call, until its result is ready to be sent
    around_cpu_s: float  # of taking the arguments and sending the result


class Answer:
    """The far side: loads code and calls its functions."""

    def __init__(self, channel: socket.socket, pid: int) -> None:
        self._channel = channel
        self._cpu_clock = (~pid << 3) | 2  # MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED)

    def cpu_s(self) -> float:
        """CPU time of its process so far; it may run but cannot touch this clock."""
        return time.clock_gettime(self._cpu_clock)

    def wait_until_ready(self) -> bool:
        try:
            return receive(self._channel) == {"ready": True}
        except BadFrame:
            return False

    def load(self, code: str) -> None:
        """Run the module; raises AnswerError naming what it raised."""
        reply = self._ask({"do": "load", "code": code})
        if "raised" in reply:
            raise AnswerError(f"{reply['raised']}: {reply.get('message')}")

    def function(self, name: str) -> Callable[..., Any]:
        def remote(*args: Any, **kwargs: Any) -> Any:
            return self._value(self._ask(_call(name, args, kwargs, timed=False)))

        remote.__name__ = name
        return remote

    def timed_call(self, name: str, args: list[Any]) -> "Timed":
        """One call and its CPU time. Whatever its process does in the meantime counts, here or there."""
        before = self.cpu_s()
        reply = self._ask(_call(name, args, {}, timed=True))
        started = self.cpu_s()
        if reply == WAITING:
            reply = self._ask(GO)
        ended = self.cpu_s()
        if reply == WAITING:
            reply = self._ask(GO)
        around_cpu_s = self.cpu_s() - before - (ended - started)
        return Timed(value=self._value(reply), cpu_s=ended - started, around_cpu_s=around_cpu_s)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            send(self._channel, request)
            reply = receive(self._channel)
        except (BadFrame, OSError) as error:
            raise AnswerGone(str(error)) from error
        if reply is None:
            raise AnswerGone("it ended before it answered")
        if reply.get("raised") == "MemoryError":
            raise OutOfMemory
        return reply

    def _value(self, reply: dict[str, Any]) -> Any:
        if "not_plain" in reply:
            raise AnswerError(f"it returned {str(reply['not_plain'])[:MAX_DETAIL]}")
        if "raised" in reply:
            name, message = str(reply["raised"])[:80], str(reply.get("message"))
            known = getattr(builtins, name, None)
            if isinstance(known, type) and issubclass(known, Exception) and known is not AssertionError:
                raise _instance_of(known, message)
            raise AnswerError(f"{name}: {message}")
        try:
            return decode(reply.get("value"))
        except NotPlain as error:
            raise AnswerError(f"it returned something {error}") from error


def _call(name: str, args: Any, kwargs: dict[str, Any], *, timed: bool) -> dict[str, Any]:
    try:
        sent = {"args": encode(list(args), depth=OUR_DEPTH), "kwargs": encode(kwargs, depth=OUR_DEPTH)}
    except NotData as error:
        raise Unsupported(f"the test passes {error}") from error
    except NotPlain as error:  # what the test made of values that the answer returned
        raise AnswerError(str(error)) from error
    return {"do": "call", "name": name, "timed": timed, **sent}


def examine(host: socket.socket, answer: Answer) -> None:
    """Take one order {"nonce", "code", "tests"} from the host, and send it {"started"} and then the verdict."""
    order = receive(host)
    if order is None or not answer.wait_until_ready():
        return
    send(host, {"nonce": order["nonce"], "started": True})
    send(host, {"nonce": order["nonce"], **verdict_on(answer, code=order["code"], tests=order["tests"])})


def verdict_on(answer: Answer, *, code: str, tests: dict[str, Any] | None) -> Verdict:
    """Load the answer, put every case to it, and say how it did.

    Once the answer runs, whatever goes wrong counts against it: it must not be able to choose to be masked.
    """
    try:
        exam = _prepared(answer, tests)
    except Exception as error:
        return _verdict("unsupported", f"the tests cannot be used: {_text_of(error)}")
    try:
        answer.load(code)
        return exam()
    except AnswerError as error:
        return _verdict("crash", _text_of(error))
    except AnswerGone as error:
        return _verdict("gone", _text_of(error))
    except (OutOfMemory, MemoryError):
        return _verdict("oom", "it ran out of memory")
    except Unsupported as error:
        return _verdict("unsupported", str(error))
    except Exception as error:
        return _verdict("wrong", f"what it returned could not be compared: {_text_of(error)}")


def _prepared(answer: Answer, tests: dict[str, Any] | None) -> Callable[[], Verdict]:
    """Everything about the tests that can fail without the answer, done before it is loaded."""
    if tests is None:
        return lambda: _verdict("ok", "loaded", results="1")
    call = answer.function(tests["function"])
    if "sizes" in tests:
        return _measuring(answer, tests["function"], make=tests["make"], sizes=tests["sizes"])
    if "code" not in tests:
        cases = [_Case.of(tests["function"], case) for case in tests["cases"]]
        if not cases:
            raise ValueError("they have no cases")
        return lambda: _run_cases(call, cases)
    namespace: dict[str, Any] = {"__name__": "tests"}
    for statement in ast.parse(tests.get("setup", "")).body:
        _execute(statement, namespace)
    namespace |= {tests["function"]: call, "candidate": call}
    statements = statements_of(tests["code"])
    if not any(one.is_case for one in statements):
        raise ValueError("they assert nothing")
    return lambda: _run_code(statements, namespace)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Case:
    shown: str
    args: list[Any]
    kwargs: dict[str, Any]
    raises: str | None
    expected: Any

    @classmethod
    def of(cls, function: str, case: dict[str, Any]) -> "_Case":
        args, kwargs = decode(case.get("args", [])), decode(case.get("kwargs", {}))
        arguments = [*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())]
        raises = case.get("raises")
        expected = None if raises else decode(case["expected"])
        return cls(
            shown=f"{function}({', '.join(arguments)})", args=args, kwargs=kwargs, raises=raises, expected=expected
        )


def _run_cases(call: Callable[..., Any], cases: list[_Case]) -> Verdict:
    return _counted([_failure_of(call, case) for case in cases])


def _failure_of(call: Callable[..., Any], case: _Case) -> str | None:
    try:
        result = call(*case.args, **case.kwargs)
    except Exception as error:
        is_wanted = type(error).__name__ == case.raises
        return None if is_wanted else f"{case.shown} raised {_text_of(error)}"
    if case.raises:
        return f"{case.shown} returned {_shown(result)} and did not raise {case.raises}"
    if result == case.expected:
        return None
    return f"{case.shown} returned {_shown(result)}, expected {_shown(case.expected)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """One statement of tests that are code."""

    node: ast.stmt
    shown: str
    is_case: bool  # it asserts something about the answer


def _run_code(statements: list[Statement], namespace: dict[str, Any]) -> Verdict:
    """Statement by statement: a failing assert does not hide the next, a failing preparation fails what is left."""
    failures: list[str | None] = []  # by case
    broken = None
    for statement in statements:
        failure = broken or _failure_in(statement, namespace)
        if statement.is_case:
            failures.append(failure)
        elif failure:
            broken = failure
    return _counted(failures)


def _failure_in(statement: Statement, namespace: dict[str, Any]) -> str | None:
    try:
        _execute(statement.node, namespace)
    except Exception as error:
        return f"{statement.shown}: {_text_of(error)}"
    return None


def statements_of(source: str) -> list[Statement]:
    """The tests' own statements, then the body of `check(candidate)` and calls of `test_...()` where they are defined.

    Raises SyntaxError.
    """
    body = ast.parse(source).body
    check = next((one for one in body if isinstance(one, ast.FunctionDef) and one.name == "check"), None)
    tests = [one.name for one in body if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")]
    return [
        *(_statement(one, source) for one in body if not (check and _calls_check(one))),
        *(_in_check(check, source) if check else []),
        *(Statement(node=ast.parse(f"{name}()").body[0], shown=f"{name}()", is_case=True) for name in tests),
    ]


def _in_check(check: ast.FunctionDef, source: str) -> list[Statement]:
    """Its statements, each a case of its own; the call as a whole where they cannot stand outside of it."""
    names = [one.arg for one in check.args.args]
    needs_a_function = any(isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom)) for node in _own_nodes(check))
    if len(names) != 1 or needs_a_function:
        return [Statement(node=ast.parse("check(candidate)").body[0], shown="check(candidate)", is_case=True)]
    name = ast.parse(f"{names[0]} = candidate").body[0]
    body = [_statement(one, source) for one in check.body]
    return [Statement(node=name, shown=ast.unparse(name), is_case=False), *body]


def _calls_check(statement: ast.stmt) -> bool:
    """A bare `check(f)`: it is put to the answer here, assert by assert."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "check"


def _own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Everything in its body but what belongs to functions inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting.extend(ast.iter_child_nodes(node))


def _statement(node: ast.stmt, source: str) -> Statement:
    return Statement(node=node, shown=ast.get_source_segment(source, node) or "", is_case=_asserts(node))


def _asserts(statement: ast.stmt) -> bool:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return False
    tests = [node.test for node in ast.walk(statement) if isinstance(node, ast.Assert)]
    return any(isinstance(node, ast.Name) for test in tests for node in ast.walk(test))  # not `assert True`


def _execute(statement: ast.stmt, namespace: dict[str, Any]) -> None:
    exec(compile(ast.Module([statement], []), "<tests>", "exec"), namespace)  # noqa: S102  tests, not answers


def _counted(failures: list[str | None]) -> Verdict:
    """A verdict on cases, None for each that passed."""
    first = next((failure for failure in failures if failure), None)
    results = "".join("0" if failure else "1" for failure in failures)
    return _verdict("wrong" if first else "ok", first or f"{len(failures)} of {len(failures)} cases", results=results)


def _measuring(answer: Answer, function: str, *, make: str, sizes: list[int]) -> Callable[[], Verdict]:
    """One call for each size, smallest first, until one takes long; arguments are made before any code is loaded."""
    namespace: dict[str, Any] = {"__name__": "inputs"}
    for statement in ast.parse(make).body:
        _execute(statement, namespace)
    inputs = [(int(size), list(namespace["make"](int(size)))) for size in sorted(sizes)]

    def exam() -> Verdict:
        load_cpu_s, calls = answer.cpu_s(), []
        for size, arguments in inputs:
            timed = answer.timed_call(function, arguments)
            costs = {"cpu_s": timed.cpu_s, "around_cpu_s": timed.around_cpu_s}
            calls.append({"size": size, **costs, "digest": digest_of(timed.value)})
            if timed.cpu_s + timed.around_cpu_s > ENOUGH_S:
                break
        return {**_verdict("ok", f"{len(calls)} sizes"), "load_cpu_s": load_cpu_s, "calls": calls}

    return exam


def digest_of(value: Any) -> str:
    """The same for values that are equal, up to the ninth digit of a float, the order of a set and tuples for lists."""
    return hashlib.sha256(json.dumps(_canonical(value)).encode()).hexdigest()[:16]


def _canonical(value: Any) -> Any:
    if isinstance(value, float) and not (value.is_integer() and abs(value) < EXACT):
        return ["number", f"{value:.9g}"]
    if isinstance(value, (int, float)):
        return ["number", hex(int(value))]
    if isinstance(value, dict):
        return ["dict", sorted(([_canonical(key), _canonical(item)] for key, item in value.items()), key=repr)]
    if isinstance(value, (set, frozenset)):
        return ["set", sorted((_canonical(item) for item in value), key=repr)]
    if isinstance(value, (list, tuple, Iterator)):
        return [_canonical(item) for item in value]
    return value if isinstance(value, (str, type(None))) else repr(value)


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:  # an integer of thousands of digits
        return "a value too large to show"


def _text_of(error: BaseException) -> str:
    """`ValueError: what it says`; our own classes speak for themselves."""
    try:
        text = str(error)
    except ValueError:
        text = "a value too large to show"
    if isinstance(error, (AnswerError, AnswerGone)):
        return text
    return f"{type(error).__name__}: {text}".rstrip(": ")


def _instance_of(kind: type[Exception], message: str) -> Exception:
    try:
        return kind(message)
    except TypeError:  # UnicodeDecodeError and its like want more
        return AnswerError(f"{kind.__name__}: {message}")


def _verdict(outcome: str, detail: str, *, results: str = "") -> Verdict:
    return {"outcome": outcome, "detail": detail[:MAX_DETAIL], "results": results}
