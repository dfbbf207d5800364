"""What a scorer is: a measurement of one output in [0, 1], or none at all.

One contract serves benchmarks and training rewards. A scorer never answers 0 for what it could not measure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol


class Status(StrEnum):
    """Whether there is a value, and if not, why."""

    SCORED = "scored"
    UNSCORED = "unscored"  # nothing to measure, or not measurable here
    ERROR = "error"  # the completion could not be had
    INFRA = "infra"  # our own sandbox or service failed: masked, never a 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemSpec:
    """One problem as scorers and completers see it. Exactly one of `prompt` and `messages`."""

    id: str
    prompt: str | None = None  # raw text the output continues
    messages: list[dict[str, str]] | None = None  # a chat the output replies to
    tests: Mapping[str, Any] | None = None  # see evals.scorers.sandbox.examiner
    slices: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """One measurement.

    Example: 2 of 3 hidden tests pass -> value 0, status scored, parts {"outcome": "wrong", "passed": 2, "total": 3}
    """

    value: float | None  # in [0, 1] exactly when status is scored
    status: Status
    explanation: str = ""  # a sentence for people
    parts: Mapping[str, Any] = field(default_factory=dict)
    sandbox_level: str = ""  # where the output ran, if it ran

    def __post_init__(self) -> None:
        assert (self.value is not None) == (self.status is Status.SCORED), f"{self.status} with value {self.value}"
        assert self.value is None or 0 <= self.value <= 1, f"a score of {self.value}"


def unscored(reason: str) -> Score:
    """There is nothing to measure, or no way to measure it here."""
    return Score(value=None, status=Status.UNSCORED, explanation=reason)


class Scorer(Protocol):
    """Measures an output; `name` and `version` are stored with every score, and change when the meaning does."""

    name: str
    version: str

    def score(self, problem: ProblemSpec, output: str) -> Score: ...
