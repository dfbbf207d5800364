"""One part of a suite against one baseline: is it not worse, is it better, is it certainly worse?

The unit is the problem; the error clustered by family is shown beside.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from evals.statistics.distributions import stdtr
from evals.statistics.estimate import Kind as IntervalKind
from evals.statistics.multiplicity import holm
from evals.statistics.paired import NothingInCommon, PairedDifference, paired_difference
from evals.statistics.power import minimal_detectable_effect
from rl_online.gate.evidence import Arm, Half
from rl_online.gate.limits import Limits
from rl_online.gate.words import p_value, points


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One part against one baseline."""

    half: str  # the part's name
    role: str
    checkpoint: str
    num_asked: int
    num_common: int
    num_unscored: int  # asked but without a score on one side at least
    difference: PairedDifference | None  # None when nothing is in common
    margin: float
    passes: bool
    sentence: str  # the finding in plain words and numbers
    detectable: float | None = None  # the smallest difference it finds 4 times in 5, two-sided at the usual 5 %
    p_better: float | None = None  # one-sided, of "no better"; None when nothing is in common
    p_worse: float | None = None  # one-sided, of "not worse by more than the margin"
    suite: str = ""
    title: str = ""  # what reasons call the part

    @property
    def coverage(self) -> float:
        return self.num_common / self.num_asked if self.num_asked else 0.0

    @property
    def where(self) -> str:
        return f"{self.title or self.half} against {self.role} {self.checkpoint}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A part on which the limits demand better than the serving checkpoint."""

    title: str
    checkpoint: str
    p_value: float | None  # one-sided; None: nothing in common
    adjusted: float | None  # by Holm over all targets of all suites
    passes: bool
    sentence: str


def find(half: Half, arm: Arm, *, limits: Limits, title: str | None = None) -> Finding:
    """Compare the candidate with one baseline on the problems asked in this part."""
    asked = half.families.keys()
    margin = limits.margin_of(half.suite, half.name)
    title = title or half.name
    where = f"{title} against {arm.role} {arm.checkpoint}"
    try:
        difference = compare(half, arm, confidence=limits.confidence)
    except NothingInCommon:
        return Finding(
            half=half.name,
            role=arm.role,
            checkpoint=arm.checkpoint,
            num_asked=len(asked),
            num_common=0,
            num_unscored=len(asked),
            difference=None,
            margin=margin,
            passes=False,
            sentence=f"{where}: refused, 0 problems in common out of {len(asked)} asked",
            suite=half.suite,
            title=title,
        )
    passes = difference.lower > -margin
    detectable = detectable_by(difference)
    return Finding(
        half=half.name,
        role=arm.role,
        checkpoint=arm.checkpoint,
        num_asked=len(asked),
        num_common=difference.num_pairs,
        num_unscored=len(asked) - difference.num_pairs,
        difference=difference,
        margin=margin,
        passes=passes,
        sentence=f"{where}: {_in_words(difference, passes=passes, margin=margin, limits=limits)}"
        + _too_blunt(detectable, passes=passes, margin=margin, n=difference.num_pairs),
        detectable=detectable,
        p_better=p_above(difference, 0.0),
        p_worse=p_below(difference, -margin),
        suite=half.suite,
        title=title,
    )


def compare(half: Half, arm: Arm, *, confidence: float) -> PairedDifference:
    """Over the problems asked; answers to others are ignored. Raises NothingInCommon."""
    asked = half.families.keys()
    return paired_difference(
        {key: value for key, value in half.candidate.items() if key in asked},
        {key: value for key, value in arm.scores.items() if key in asked},
        clusters=half.families,
        confidence=confidence,
    )


def spread_of(difference: PairedDifference) -> float | None:
    """Standard deviation of the differences; None where they never varied."""
    return difference.se * math.sqrt(difference.num_pairs) if difference.se else None


def detectable_by(difference: PairedDifference) -> float | None:
    """What so many problems see at all; None where nothing varied, so that nothing is known of it."""
    spread = spread_of(difference)
    return None if spread is None else minimal_detectable_effect(sd=spread, n=difference.num_pairs)


def p_above(difference: PairedDifference, bound: float) -> float:
    """One-sided p-value of "the true difference is at most `bound`": small means it lies above."""
    if difference.bound == IntervalKind.EXACT or not difference.se:
        return _p_exact(difference.mean, bound, difference.num_pairs)
    return float(stdtr(difference.num_pairs - 1, (bound - difference.mean) / difference.se))


def p_below(difference: PairedDifference, bound: float) -> float:
    """One-sided p-value of "the true difference is at least `bound`"."""
    if difference.bound == IntervalKind.EXACT or not difference.se:
        return _p_exact(-difference.mean, -bound, difference.num_pairs)
    return float(stdtr(difference.num_pairs - 1, (difference.mean - bound) / difference.se))


def _p_exact(middle: float, bound: float, n: int) -> float:
    """All n pairs came out at `middle`. Were the truth at `bound`, a part r of the problems would have to be at -1:
    middle - r (middle + 1) = bound, and n pairs would all miss it with probability (1 - r)^n."""
    if middle <= bound:
        return 1.0
    return float((1 - (middle - bound) / (middle + 1)) ** n)


def targets_of(findings: Sequence[Finding], limits: Limits) -> tuple[Target, ...]:
    """Where better than the serving checkpoint is demanded, by Holm over all of them, whichever suite they are of."""
    wanted = [
        finding
        for finding in findings
        if finding.role == "serving" and limits.demands_better(finding.suite, finding.half)
    ]
    adjusted = holm([finding.p_better for finding in wanted])
    return tuple(
        _target(finding, p_held, len(wanted), limits) for finding, p_held in zip(wanted, adjusted, strict=True)
    )


def _target(finding: Finding, adjusted: float | None, num: int, limits: Limits) -> Target:
    passes = adjusted is not None and adjusted < 1 - limits.confidence
    measured = "nothing in common" if finding.difference is None else f"{points(finding.difference.mean)} points"
    said = f"p {'unknown' if adjusted is None else p_value(adjusted)} by Holm over {num}"
    return Target(
        title=finding.title,
        checkpoint=finding.checkpoint,
        p_value=finding.p_better,
        adjusted=adjusted,
        passes=passes,
        sentence=f"{finding.where}: {measured}, better is {'' if passes else 'not '}shown ({said})",
    )


def proven_losses(findings: Sequence[Finding], limits: Limits) -> tuple[str, ...]:
    """Findings whose loss beyond the margin is certain, not merely possible; by Holm, since any of them is enough."""
    seen = [
        finding for finding in findings if finding.difference is not None and finding.num_common >= limits.min_pairs
    ]
    adjusted = holm([finding.p_worse for finding in seen])
    return tuple(
        f"{finding.where}: upper {limits.confidence:.0%} bound "
        f"{points(finding.difference.upper)} is below {points(-finding.margin)} points"
        + (f" (p {p_value(p_held)} by Holm over {len(seen)})" if len(seen) > 1 else "")
        for finding, p_held in zip(seen, adjusted, strict=True)
        if finding.difference is not None and p_held is not None and p_held < 1 - limits.confidence
    )


def too_thin(finding: Finding, limits: Limits) -> str | None:
    """Why too little was measured to decide by; None: it is enough."""
    if finding.difference is None:
        return finding.sentence
    if finding.coverage < limits.min_coverage:
        return (
            f"{finding.where}: {finding.num_unscored} of {finding.num_asked} problems are unscored on one side or "
            f"both, coverage {finding.coverage:.0%} is below {limits.min_coverage:.0%}"
        )
    if finding.num_common < limits.min_pairs:
        return f"{finding.where}: {finding.num_common} problems in common, at least {limits.min_pairs} are needed"
    return None


def _in_words(difference: PairedDifference, *, passes: bool, margin: float, limits: Limits) -> str:
    kind = "exact lower" if difference.bound == IntervalKind.EXACT else "lower"
    comparison = "above" if passes else "not above"
    verdict = "not inferior" if passes else "inferiority is not ruled out"
    bound = f"{kind} {limits.confidence:.0%} bound {points(difference.lower)}"
    return (
        f"{points(difference.mean)} points on {difference.num_pairs} problems "
        f"({difference.better} better, {difference.worse} worse, {difference.equal} equal), "
        f"{bound} {comparison} {points(-margin)}: {verdict}"
    )


def _too_blunt(detectable: float | None, *, passes: bool, margin: float, n: int) -> str:
    """What a reader of a miss should know: so few problems could not have told."""
    if passes or detectable is None or detectable <= margin:
        return ""
    return f"; {n} problems cannot see less than {points(detectable).lstrip('+')} points"
