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
from dataclasses import dataclass
from typing import Any

from evals.scorers.sandbox.codec import MAX_DEPTH, NotData, NotPlain, decode, encode
from evals.scorers.sandbox.wire import BadFrame, receive, send

Verdict = dict[str, Any]  # {"outcome", "detail", "passed", "total"}
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
                sent = {"args": encode(list(args), depth=OUR_DEPTH), "kwargs": encode(kwargs, depth=OUR_DEPTH)}
            except NotData as error:
                raise Unsupported(f"the test passes {error}") from error
            except NotPlain as error:  # what the test made of values that the answer returned
                raise AnswerError(str(error)) from error
            return self._value(self._ask({"do": "call", "name": name, **sent}))

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
        return lambda: _verdict("ok", "loaded", passed=1, total=1)
    call = answer.function(tests["function"])
    if "code" not in tests:
        cases = [_Case.of(tests["function"], case) for case in tests["cases"]]
        if not cases:
            raise ValueError("they have no cases")
        return lambda: _run_cases(call, cases)
    namespace: dict[str, Any] = {"__name__": "tests"}
    for statement in ast.parse(tests.get("setup", "")).body:
        _execute(statement, namespace)
    namespace |= {tests["function"]: call, "candidate": call}
    statements = _statements(tests["code"])
    if not any(is_case for _, _, is_case in statements):
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
    failures = [failure for case in cases if (failure := _failure_of(call, case)) is not None]
    return _counted(failures, total=len(cases))


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


# A statement compiled, its text, and whether it asserts something about the answer.
_Statement = tuple[ast.stmt, str, bool]


def _run_code(statements: list[_Statement], namespace: dict[str, Any]) -> Verdict:
    """Statement by statement: a failing assert does not hide the next, a failing preparation ends it."""
    passed, failures = 0, []
    for statement, shown, is_case in statements:
        try:
            _execute(statement, namespace)
        except Exception as error:
            failures.append(f"{shown}: {_text_of(error)}")
            if not is_case:
                break
            continue
        passed += is_case
    return _counted(failures, total=passed + len(failures))


def _statements(source: str) -> list[_Statement]:
    """The tests' own statements, then calls of `check(candidate)` and of `test_...()` where they are defined."""
    found = [(one, ast.get_source_segment(source, one) or "", _asserts(one)) for one in ast.parse(source).body]
    functions = [one for one, _, _ in found if isinstance(one, ast.FunctionDef)]
    calls = ["check(candidate)" for one in functions if one.name == "check"]
    calls += [f"{one.name}()" for one in functions if one.name.startswith("test_") and not one.args.args]
    return [*found, *((ast.parse(call).body[0], call, True) for call in calls)]


def _asserts(statement: ast.stmt) -> bool:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return False
    return any(isinstance(node, ast.Assert) for node in ast.walk(statement))


def _execute(statement: ast.stmt, namespace: dict[str, Any]) -> None:
    exec(compile(ast.Module([statement], []), "<tests>", "exec"), namespace)  # noqa: S102  tests, not answers


def _counted(failures: list[str], *, total: int) -> Verdict:
    detail = failures[0] if failures else f"{total} of {total} cases"
    return _verdict("wrong" if failures else "ok", detail, passed=total - len(failures), total=total)


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


def _verdict(outcome: str, detail: str, *, passed: int = 0, total: int = 0) -> Verdict:
    return {"outcome": outcome, "detail": detail[:MAX_DETAIL], "passed": passed, "total": total}
