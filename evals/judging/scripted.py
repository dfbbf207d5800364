"""Judges without a model: a rule replies. They cost nothing, never change their mind, and are what a model must beat.

Not for deciding anything: "longest" agreed with people on 62 % of AlpacaEval's pairs, which says how little that is.
"""

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Self

from evals.judging.completer import Completion, CompletionFailed, Prompt

Shown = Mapping[str, Any]  # the user message of a judge's request


def _longest(shown: Shown) -> float | str:
    if "answer" in shown:
        raise CompletionFailed("longest compares two answers; it cannot mark one")
    a, b = len(shown["answer_A"]), len(shown["answer_B"])
    return "tie" if a == b else "A" if a > b else "B"


def _same_as_reference(shown: Shown) -> float | str:
    if shown.get("reference") is None:
        raise CompletionFailed("same-as-reference needs a reference")
    return 1.0 if shown["answer"].strip() == shown["reference"].strip() else 0.0


SCRIPTS: dict[str, Callable[[Shown], float | str]] = {
    "longest": _longest,
    "same-as-reference": _same_as_reference,
}


class ScriptedCompleter:
    """Replies to a judge's request as a judge would, by one of SCRIPTS; marks are given on the scale from `low` up."""

    def __init__(self, script: str, *, low: float = 0.0, high: float = 1.0) -> None:
        self._name, self._rule, self._low, self._high = script, SCRIPTS[script], low, high

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def complete(self, prompt: Prompt, sampling: Mapping[str, Any]) -> Completion:
        if isinstance(prompt, str) or len(prompt) < 2:
            raise CompletionFailed("a scripted judge replies to judges' requests only")
        said = self._rule(json.loads(prompt[1]["content"]))
        answer = {"verdict": said} if isinstance(said, str) else {"score": self._low + said * (self._high - self._low)}
        text = json.dumps({"rationale": f"by the rule {self._name}", **answer})
        return Completion(text=text, cost_usd=Decimal(0), latency_ms=0.0, origin=f"scripted/{self._name}")
