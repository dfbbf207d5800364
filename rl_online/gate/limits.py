"""What counts as proof."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rl_online.gate.parts import covering, names_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Shares and differences are in [0, 1]; reports print them as points. Names are those of rl_online.gate.parts."""

    margin: float = 0.10  # the loss that must be ruled out
    confidence: float = 0.95  # one-sided
    min_coverage: float = 0.95  # share of asked problems scored on both sides
    min_pairs: int = 30  # fewer cannot decide anything
    max_rounds: int = 3  # after that, missing scores hold instead of asking again
    canary_share: float = 0.0  # traffic share of a canary stage; 0 promotes at once
    margins: Mapping[str, float] = field(default_factory=dict)  # suite or part -> its own margin
    superior_on: Sequence[str] = ()  # suites and parts on which it must be shown to be better than the serving one
    guards: Mapping[str, float] = field(default_factory=dict)  # guard -> by how much it may rise; others are only shown
    max_forgetting: float = 0.2  # nats per token on general text that the candidate may be worse than the base
    judged: float | None = None  # a healthy judge's win rate is to be shown above it; None: a judge has no vote

    def __post_init__(self) -> None:
        """Raises ValueError naming the field."""
        shares = {"margin": self.margin, "min_coverage": self.min_coverage, "canary_share": self.canary_share}
        if self.judged is not None:
            shares["judged"] = self.judged
        for name, value in (*shares.items(), *((f"margins.{part}", value) for part, value in self.margins.items())):
            if not 0 <= value <= 1:
                raise ValueError(f"{name} is {value}; give a share from 0 to 1")
        if not 0.5 <= self.confidence < 1:
            raise ValueError(f"confidence is {self.confidence}; give .5 to below 1")
        if not (math.isfinite(self.max_forgetting) and self.max_forgetting > 0):
            raise ValueError(f"max_forgetting is {self.max_forgetting}; give nats per token above 0")
        for name, value in self.guards.items():
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"guards.{name} is {value}; give 0 or more")

    @property
    def named(self) -> list[str]:
        """Suites and parts that must have been measured."""
        return [*self.margins, *self.superior_on]

    def margin_of(self, suite: str, part: str) -> float:
        """The most exact one there is: of the part, else of its suite, else of all."""
        return next((self.margins[name] for name in covering(suite, part) if name in self.margins), self.margin)

    def demands_better(self, suite: str, part: str) -> bool:
        return any(name in self.superior_on for name in names_of(suite, part))
