"""What can be told of test cases without running anything: which the prompt shows, what a constant would pass. Pure.

Cases are counted as the examiner counts them (evals.scorers.sandbox.examiner), so that its results line up.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evals.scorers.sandbox.codec import decode
from evals.scorers.sandbox.examiner import statements_of
from evals.scorers.scorer import ProblemSpec

MAX_EXAMPLE = 2000  # characters of a call in a prompt


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One case of the tests, as far as it can be read."""

    calls: frozenset[str]  # arguments of each call with plain values, in one spelling; empty when none can be read
    expected: str | None  # what is asked for, in one spelling; None when it is no plain value


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """How far a result says more than a table of the prompt's examples, or a constant, would."""

    num_hidden: int  # cases whose calls the prompt does not show
    num_hidden_passed: int
    num_by_constant: int  # hidden cases that the best single return value would pass

    @property
    def can_tell(self) -> bool:
        """False when every case is shown, or a constant would pass all that are not."""
        return self.num_by_constant < self.num_hidden

    @property
    def is_general(self) -> bool:
        return self.num_hidden_passed > self.num_by_constant


def standing_of(problem: ProblemSpec, results: str) -> Standing:
    """`results` is "1" or "0" for each case; an empty one (it never got so far) passed nothing."""
    cases = cases_of(problem.tests or {})
    results = results or "0" * len(cases)
    assert len(results) == len(cases), f"{len(results)} results for {len(cases)} cases"
    shown = shown_calls(problem)
    hidden = [
        (case, result == "1")
        for case, result in zip(cases, results, strict=True)
        if not case.calls or not case.calls <= shown
    ]
    wanted = Counter(case.expected for case, _ in hidden if case.expected is not None)
    return Standing(
        num_hidden=len(hidden),
        num_hidden_passed=sum(passed for _, passed in hidden),
        num_by_constant=max(wanted.values(), default=0),
    )


def cases_of(tests: Mapping[str, Any]) -> list[Case]:
    """In the examiner's order; raises what malformed tests raise there."""
    if "code" not in tests:
        return [_plain_case(case) for case in tests["cases"]]
    statements = statements_of(tests["code"])
    names = {tests["function"], "candidate", *(name for one in statements for name in _other_names(one.node))}
    return [_coded_case(one.node, names) for one in statements if one.is_case]


def shown_calls(problem: ProblemSpec) -> frozenset[str]:
    """Every call of the tested function with plain arguments that stands in the prompt."""
    function = str((problem.tests or {}).get("function", ""))
    text = "\n".join([problem.prompt or "", *(message.get("content") or "" for message in problem.messages or [])])
    return frozenset(_calls_in_text(text, function))


def _other_names(node: ast.stmt) -> Iterator[str]:
    """What `x = candidate` calls it, as the body of a check function may."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id == "candidate":
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _plain_case(case: Mapping[str, Any]) -> Case:
    call = _spelling(decode(case.get("args", [])), decode(case.get("kwargs", {})))
    raises = case.get("raises")
    return Case(calls=frozenset([call]), expected=f"raises {raises}" if raises else repr(decode(case["expected"])))


def _coded_case(node: ast.stmt, names: set[str]) -> Case:
    calls = [one for one in ast.walk(node) if _calls_one_of(one, names)]
    spelt = [_spelling_of_call(one) for one in calls if isinstance(one, ast.Call)]
    readable = frozenset(one for one in spelt if one is not None)
    return Case(calls=readable if len(readable) == len(set(spelt)) else frozenset(), expected=_expected(node, names))


def _expected(node: ast.stmt, names: set[str]) -> str | None:
    """Of `assert f(...) == value`, `assert f(...)` and `assert not f(...)`."""
    if not isinstance(node, ast.Assert):
        return None
    test = node.test
    if _calls_one_of(test, names):
        return "True"
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and _calls_one_of(test.operand, names):
        return "False"
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.Is)):
        sides = (test.left, test.comparators[0])
        value = next((side for side in sides if not _calls_one_of(side, names)), None)
        if value is not None and any(_calls_one_of(side, names) for side in sides):
            return _literal(value)
    return None


def _calls_one_of(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _calls_in_text(text: str, function: str) -> Iterator[str]:
    for match in re.finditer(rf"\b{re.escape(function)}\s*\(", text) if function else ():
        for end in range(match.end(), min(len(text), match.end() + MAX_EXAMPLE)):
            if text[end] != ")":
                continue
            if call := _parsed_call(text[match.start() : end + 1]):
                if spelt := _spelling_of_call(call):
                    yield spelt
                break


def _parsed_call(text: str) -> ast.Call | None:
    try:
        found = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    return found if isinstance(found, ast.Call) else None


def _spelling_of_call(call: ast.Call) -> str | None:
    args = [_value(one) for one in call.args]
    kwargs = {one.arg: _value(one.value) for one in call.keywords}
    if None in kwargs or any(isinstance(one, _NotPlain) for one in [*args, *kwargs.values()]):
        return None
    return _spelling(args, kwargs)


def _spelling(args: Sequence[Any], kwargs: Mapping[Any, Any]) -> str:
    return repr((list(args), sorted(kwargs.items())))


class _NotPlain:
    """Stands for an argument that is no literal."""


def _value(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, MemoryError, RecursionError):
        return _NotPlain()


def _literal(node: ast.expr) -> str | None:
    value = _value(node)
    return None if isinstance(value, _NotPlain) else repr(value)
