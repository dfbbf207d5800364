"""Whether the new is not worse than the old by more than a margin, from an interval of new - old.

No p-value is needed: what counts is on which side of -margin the interval lies. The margin is chosen before looking and
kept with the answer.
"""

from dataclasses import dataclass
from enum import StrEnum

from evals.statistics.estimate import Estimate


class Finding(StrEnum):
    NOT_WORSE = "not worse"  # the whole interval lies above -margin
    WORSE = "worse"  # the whole interval lies at or below -margin
    NOT_SHOWN = "not shown"  # it covers -margin: more data may tell
    UNDEFINED = "undefined"  # there is no interval


@dataclass(frozen=True, kw_only=True, slots=True)
class NonInferiority:
    """Example: +.01 [-.02, .04] at margin .03 -> not worse; at margin .01 -> not shown."""

    finding: Finding
    margin: float
    difference: Estimate

    @property
    def is_shown(self) -> bool:
        return self.finding == Finding.NOT_WORSE


def non_inferior(difference: Estimate, *, margin: float) -> NonInferiority:
    """`difference` is new - old with a two-sided interval: at 95 % the answer errs one time in 40."""
    if margin < 0:
        raise ValueError(f"the margin is {margin}; give what may be lost, 0 or more")
    return NonInferiority(finding=_finding(difference, margin), margin=margin, difference=difference)


def _finding(difference: Estimate, margin: float) -> Finding:
    if difference.low is None or difference.high is None:
        return Finding.UNDEFINED
    if difference.low > -margin:
        return Finding.NOT_WORSE
    return Finding.WORSE if difference.high <= -margin else Finding.NOT_SHOWN
