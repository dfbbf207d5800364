"""What a family of one-line functions is, and how one of its thousands of variants is drawn.

A family says in words what its functions do and knows the right answer as a Python function; names, parameters,
wording and the constant are drawn. Here are the parts families are made of; the families themselves are in
`on_numbers`, `on_lists` and `on_text`, the sets of problems in `families`.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

NUM_CASES = 8
VERBS = ("Return", "Returns", "Compute")
HINT_SHARE = 0.3  # of the functions are written with type hints

Arguments = list[Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """What a function takes: the names its parameters may have, and arguments to try it on."""

    names: tuple[tuple[str, ...], ...]  # each a full parameter list
    hint: str  # of every parameter
    draw: Callable[[Random, Any], Arguments]  # one call's arguments, chosen so that the constant matters


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """Functions that differ in names, wording and one constant.

    Placeholders: {k} the constant (as Python writes it), {x} and {y} the parameters, {Return} one of VERBS.
    """

    name: str
    takes: Kind
    functions: tuple[str, ...]
    docstrings: tuple[str, ...]
    reference: str  # the expression after `return`
    answer: Callable[..., Any]  # the same in Python: (arguments..., k) when there is a constant, else (arguments...)
    gives: str  # the result's type hint
    constants: Sequence[Any] = ()  # empty: the family has none


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    args: Arguments
    expected: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Exercise:
    """One function to complete: the prompt ends in `    return`, the answer is the rest of that line."""

    problem_id: str  # the same for the same prompt, always
    family: str
    prompt: str
    function: str
    cases: tuple[Case, ...]
    reference: str

    @property
    def tests(self) -> dict[str, Any]:
        """As the `unit_tests` scorer reads them."""
        cases = [{"args": case.args, "expected": case.expected} for case in self.cases]
        return {"function": self.function, "cases": cases}


def draw(family: Family, rng: Random) -> Exercise:
    """One variant. Neither a constant nor the argument given back passes its tests."""
    constant = rng.choice(family.constants) if family.constants else None
    parameters = rng.choice(family.takes.names)
    words = dict(zip("xy", parameters, strict=False)) | {"k": constant, "Return": rng.choice(VERBS)}
    function = rng.choice(family.functions).format(**words)
    docstring = rng.choice(family.docstrings).format(**(words | {"k": repr(constant)}))
    is_hinted = rng.random() < HINT_SHARE
    head = _hinted(function, parameters, family) if is_hinted else f"def {function}({', '.join(parameters)}):"
    prompt = f'{head}\n    """{docstring}"""\n    return'
    return Exercise(
        problem_id=f"{family.name}-{hashlib.sha256(prompt.encode()).hexdigest()[:12]}",
        family=family.name,
        prompt=prompt,
        function=function,
        cases=_cases(family, constant, Random(prompt)),
        reference=" " + family.reference.format(**(words | {"k": repr(constant)})),
    )


def _hinted(function: str, parameters: Sequence[str], family: Family) -> str:
    hinted = ", ".join(f"{name}: {family.takes.hint}" for name in parameters)
    return f"def {function}({hinted}) -> {family.gives}:"


def _cases(family: Family, constant: Any, rng: Random) -> tuple[Case, ...]:
    """Drawn from the prompt alone, so that the same prompt always has the same tests."""
    while True:
        calls = [family.takes.draw(rng, constant) for _ in range(NUM_CASES)]
        known = [constant] if family.constants else []
        cases = tuple(Case(args=args, expected=family.answer(*args, *known)) for args in calls)
        changed = any(case.expected != case.args[0] for case in cases)
        if changed and len({repr(case.expected) for case in cases}) > 1:
            return cases
