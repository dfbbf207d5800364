"""What a suite as a whole can see: how many problems both sides share, and the smallest difference they find.

It decides nothing by itself. A suite that cannot see the loss it is asked about ends "not shown", which is not "none".
"""

from collections.abc import Iterable
from dataclasses import dataclass

from evals.statistics.paired import NothingInCommon
from rl_online.gate.evidence import Arm, Evidence, Half
from rl_online.gate.findings import compare, detectable_by, spread_of
from rl_online.gate.limits import Limits


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """One suite against one baseline."""

    suite: str  # "": there is but one
    role: str
    checkpoint: str
    num_asked: int
    num_common: int  # scored on both sides
    mean: float | None  # difference over them; None: nothing in common
    se: float | None
    sd: float | None  # of the differences; None where they never varied
    detectable: float | None  # found 4 times in 5, two-sided at the usual 5 %
    sentence: str

    @property
    def coverage(self) -> float:
        return self.num_common / self.num_asked if self.num_asked else 0.0


def reaches(evidence: Evidence, limits: Limits) -> tuple[Reach, ...]:
    suites = dict.fromkeys(half.suite for half in evidence.halves)
    return tuple(
        _reach(whole, arm, limits)
        for suite in suites
        for whole in [_union(half for half in evidence.halves if half.suite == suite)]
        for arm in whole.baselines
    )


def _union(halves: Iterable[Half]) -> Half:
    """All problems of a suite; parts may overlap."""
    found = list(halves)
    roles = {arm.role: arm for half in found for arm in half.baselines}
    return Half(
        name="",
        suite=found[0].suite,
        families={key: family for half in found for key, family in half.families.items()},
        candidate={key: score for half in found for key, score in half.candidate.items()},
        baselines=tuple(
            Arm(
                role=role,
                checkpoint=arm.checkpoint,
                scores={
                    key: score
                    for half in found
                    for each in half.baselines
                    if each.role == role
                    for key, score in each.scores.items()
                },
            )
            for role, arm in roles.items()
        ),
    )


def _reach(whole: Half, arm: Arm, limits: Limits) -> Reach:
    num_asked = len(whole.families)
    try:
        difference = compare(whole, arm, confidence=limits.confidence)
    except NothingInCommon:
        difference = None
    detectable = None if difference is None else detectable_by(difference)
    return Reach(
        suite=whole.suite,
        role=arm.role,
        checkpoint=arm.checkpoint,
        num_asked=num_asked,
        num_common=difference.num_pairs if difference else 0,
        mean=difference.mean if difference else None,
        se=difference.se if difference else None,
        sd=spread_of(difference) if difference else None,
        detectable=detectable,
        sentence=_in_words(detectable, nothing=difference is None),
    )


def _in_words(detectable: float | None, *, nothing: bool) -> str:
    if nothing:
        return "no problem in common: this suite cannot see anything"
    if detectable is None:
        return "no answer differs by more or less than another, so what this suite could see is not known"
    return f"this suite cannot see less than {100 * detectable:.1f} points"
