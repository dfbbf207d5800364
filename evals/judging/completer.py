"""The seam to whatever answers prompts: our own policies through the gateway, a judge somewhere else, a script in a
test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol, Self

Messages = Sequence[Mapping[str, str]]  # a chat: [{"role": "user", "content": "..."}]
Prompt = Messages | str  # or raw text to continue, no template applied


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenChoices:
    """One token of an answer, and what could have stood there."""

    token: str
    top: Mapping[str, float] = field(default_factory=dict)  # token -> log probability


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """One answer and what it took."""

    text: str
    reasoning: str = ""  # what it told of its thinking, apart from the text
    usage: Mapping[str, Any] = field(default_factory=dict)  # registry.pricing kinds, provided_usd; empty: not told
    cost_usd: Decimal | None = None  # None: unpriced, which is not free
    latency_ms: float | None = None
    origin: str = ""  # the model or checkpoint that says it answered
    finish_reason: str | None = None
    tokens: Sequence[TokenChoices] = ()  # only where they were asked for


class CompletionFailed(Exception):
    """No answer could be had: refused, timed out, or not understood, also after retries."""


class CompletionRefused(CompletionFailed):
    """The request itself is wrong for whoever was asked (status 400 or 422); asking again would be refused again."""


class Completer(Protocol):
    """Answers prompts; used inside `async with`, by many tasks at once."""

    async def complete(self, prompt: Prompt, sampling: Mapping[str, Any]) -> Completion:
        """Raises CompletionFailed, and nothing else, when there is no answer."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...
