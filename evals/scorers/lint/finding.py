"""What linters answer, whichever it is."""

from dataclasses import dataclass
from typing import Any, Protocol

ERROR, LIKELY_BUG, OTHER = 5, 2, 1  # weights


class LinterUnavailable(RuntimeError):
    """There is no such linter here, or it failed; the message says how to get it."""


class NotParsed(ValueError):
    """The code is not in the language."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing a linter objects to."""

    rule: str
    line: int  # from 1
    message: str
    weight: int  # ERROR, LIKELY_BUG or OTHER

    def to_json(self) -> dict[str, Any]:
        return {"rule": self.rule, "line": self.line, "message": self.message, "weight": self.weight}


class Linter(Protocol):
    """A linter with a fixed set of rules; code_quality.RULES changes with them."""

    def findings(self, code: str, *, language: str) -> list[Finding]:
        """By line. Raises NotParsed, LinterUnavailable."""
        ...

    def version(self) -> str:
        """Name and release, e.g. `ruff 0.17.6`. Raises LinterUnavailable."""
        ...
