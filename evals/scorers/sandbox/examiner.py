"""The process that knows the tests: it has the answer's functions called elsewhere and compares what comes back.

An answer's values arrive as plain data, so `==` here is Python's own. It is confined like the answer, because tests of
imported benchmarks are not ours either, and it is the only process besides the host that holds the verdict's socket.

Tests are {"function": name, "cases": [{"args", "kwargs", "expected" or "raises"}]} or {"function": name, "code":
source}, in which that function, also called `candidate`, is callable; every top-level `assert` counts as one case, and
a function `check(candidate)` is called. `setup` is source of ours to run before `code`, for helpers the tests need.
None loads the answer and asks nothing.
"""

import ast
import builtins
import socket
from collections.abc import Callable
from typing import Any

from evals.scorers.sandbox.codec import NotPlain, decode, encode
from evals.scorers.sandbox.wire import BadFrame, receive, send

Verdict = dict[str, Any]  # {"outcome", "detail", "passed", "total"}
MAX_DETAIL = 1000  # characters


class AnswerGone(BaseException):
    """The answer's process ended or spoke nonsense. Not an Exception: a test must not catch it."""


class OutOfMemory(BaseException):
    """The answer ran out of memory while loading or in a call."""


class Unsupported(BaseException):
    """A test that this sandbox cannot express, e.g. one that passes a function to the answer."""


class AnswerError(Exception):
    """An exception of the answer whose class is not a built-in one."""


class Answer:
    """The far side: loads code and calls its functions."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel

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
            try:
                request = {"do": "call", "name": name, "args": encode(list(args)), "kwargs": encode(kwargs)}
            except NotPlain as error:
                raise Unsupported(f"the test passes {error}") from error
            return self._value(self._ask(request))

        remote.__name__ = name
        return remote

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
        if "raised" in reply:
            name, message = str(reply["raised"])[:80], str(reply.get("message"))
            known = getattr(builtins, name, None)
            if isinstance(known, type) and issubclass(known, Exception) and known is not AssertionError:
                raise _instance_of(known, message)
            raise AnswerError(f"{name}: {message}")
        try:
            return decode(reply.get("value"))
        except NotPlain as error:
            raise AnswerGone(str(error)) from error


def examine(host: socket.socket, answer: Answer) -> None:
    """Take one order {"nonce", "code", "tests"} from the host, and send it {"started"} and then the verdict."""
    order = receive(host)
    if order is None or not answer.wait_until_ready():
        return
    send(host, {"nonce": order["nonce"], "started": True})
    send(host, {"nonce": order["nonce"], **verdict_on(answer, code=order["code"], tests=order["tests"])})


def verdict_on(answer: Answer, *, code: str, tests: dict[str, Any] | None) -> Verdict:
    """Load the answer, put every case to it, and say how it did."""
    try:
        answer.load(code)
        if tests is None:
            return _verdict("ok", "loaded", passed=1, total=1)
        return _run_code(answer, tests) if "code" in tests else _run_cases(answer, tests)
    except AnswerError as error:
        return _verdict("crash", str(error))
    except AnswerGone as error:
        return _verdict("gone", str(error))
    except (OutOfMemory, MemoryError):
        return _verdict("oom", "it ran out of memory")
    except Unsupported as error:
        return _verdict("unsupported", str(error))


def _run_cases(answer: Answer, tests: dict[str, Any]) -> Verdict:
    name, failures = tests["function"], []
    call = answer.function(name)
    for case in tests["cases"]:
        args, kwargs = decode(case.get("args", [])), decode(case.get("kwargs", {}))
        shown = f"{name}({', '.join([*map(repr, args), *(f'{key}={value!r}' for key, value in kwargs.items())])})"
        try:
            result = call(*args, **kwargs)
        except Exception as error:
            if case.get("raises") != type(error).__name__:
                failures.append(f"{shown} raised {type(error).__name__}: {error}")
            continue
        if "raises" in case:
            failures.append(f"{shown} returned {result!r} and did not raise {case['raises']}")
        elif not _equal(result, decode(case["expected"])):
            failures.append(f"{shown} returned {result!r}, expected {decode(case['expected'])!r}")
    total = len(tests["cases"])
    return _verdict(
        "wrong" if failures else "ok",
        failures[0] if failures else f"{total} of {total} cases",
        passed=total - len(failures),
        total=total,
    )


def _run_code(answer: Answer, tests: dict[str, Any]) -> Verdict:
    source, call = tests["code"], answer.function(tests["function"])
    namespace: dict[str, Any] = {"__name__": "tests"}
    try:
        for statement in _statements(tests.get("setup", "")):
            _execute(statement, namespace)
    except Exception as error:
        raise Unsupported(f"the setup of the tests raised {type(error).__name__}: {error}") from error
    namespace |= {tests["function"]: call, "candidate": call}
    passed, failures = 0, []
    for statement in _statements(source):
        is_case = isinstance(statement, ast.Assert) or statement is _CHECK
        try:
            _execute(statement, namespace)
        except Exception as error:
            shown = "check(candidate)" if statement is _CHECK else ast.get_source_segment(source, statement)
            failures.append(f"{shown}: {type(error).__name__}: {error}".rstrip(": "))
            if not is_case:
                break
            continue
        passed += is_case
    total = passed + len(failures)
    if not total:
        raise Unsupported("the tests assert nothing")
    return _verdict(
        "wrong" if failures else "ok",
        failures[0] if failures else f"{total} of {total} cases",
        passed=passed,
        total=total,
    )


_CHECK = ast.parse("check(candidate)").body[0]


def _statements(source: str) -> list[ast.stmt]:
    try:
        statements = ast.parse(source).body
    except SyntaxError as error:
        raise Unsupported(f"the tests are not Python: {error}") from error
    defines_check = any(isinstance(item, ast.FunctionDef) and item.name == "check" for item in statements)
    return [*statements, _CHECK] if defines_check else statements


def _execute(statement: ast.stmt, namespace: dict[str, Any]) -> None:
    exec(compile(ast.Module([statement], []), "<tests>", "exec"), namespace)  # noqa: S102  tests, not answers


def _equal(result: Any, expected: Any) -> bool:
    try:
        return bool(result == expected)
    except RecursionError:
        return False


def _instance_of(kind: type[Exception], message: str) -> Exception:
    try:
        return kind(message)
    except TypeError:  # UnicodeDecodeError and its like want more
        return AnswerError(f"{kind.__name__}: {message}")


def _verdict(outcome: str, detail: str, *, passed: int = 0, total: int = 0) -> Verdict:
    return {"outcome": outcome, "detail": detail[:MAX_DETAIL], "passed": passed, "total": total}
