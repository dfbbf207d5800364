"""What a pass rate is divided by: all that was asked, or only what could be scored. Both have a name; neither is "the".

A trial without a verdict (broken parser, lost machine, timeout of the tests) is not a failed trial, and leaving it out
is not neutral either: whoever breaks on hard problems looks better. So both are shown.
"""

from dataclasses import dataclass

from evals.statistics.estimate import CONFIDENCE, Estimate
from evals.statistics.proportions import wilson

MANY_WITHOUT_VERDICT = 0.05  # from here on a page warns


@dataclass(frozen=True, kw_only=True, slots=True)
class PassRates:
    """Example: 238 passed of 405 with a verdict, 445 asked -> strict 53.5 %, scoreable 58.8 %."""

    strict: Estimate  # passed / asked: no verdict counts as not passed
    scoreable: Estimate  # passed / with a verdict; `coverage` says how many that are
    num_without_verdict: int

    @property
    def warning(self) -> str:
        """For a person; empty when nearly all trials have a verdict."""
        asked = self.strict.num_asked
        if not asked or self.num_without_verdict / asked < MANY_WITHOUT_VERDICT:
            return ""
        return f"{100 * self.num_without_verdict / asked:.0f} % of trials have no verdict"


def pass_rates(*, passed: int, with_verdict: int, asked: int, confidence: float = CONFIDENCE) -> PassRates:
    """Shares with Wilson's intervals; nothing asked leaves both undefined ("no data"), not 0.

    Trials that ended in an error and have a valid reward all the same are among `with_verdict`, once.
    """
    if not 0 <= passed <= with_verdict <= asked:
        raise ValueError(
            f"{passed} passed, {with_verdict} with a verdict, {asked} asked: each must be part of the next; "
            "count a trial once, also when it both errored and completed"
        )
    return PassRates(
        strict=wilson(passed, asked, confidence=confidence).estimate(),
        scoreable=wilson(passed, with_verdict, confidence=confidence).estimate(num_asked=asked),
        num_without_verdict=asked - with_verdict,
    )
