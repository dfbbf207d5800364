"""Whether a checkpoint has proved itself: a non-inferiority decision on scores that are already measured.

On each half (families seen in traffic, families never shown) and against each baseline (the serving checkpoint, the
first one) the candidate answered the same problems. It passes where the lower one-sided 95 % bound of the paired
difference lies above minus the margin: it may be no better, but it is shown not to be worse by more than the margin.
The first checkpoint is among the baselines so that small losses cannot add up. The unit is the problem; the error
clustered by family is shown beside. That every half must pass needs no correction: passing all is
harder than passing one. Where one of several is enough to say something (better on a target, certainly worse), Holm
keeps the false alarm rate of them all. Guards are side effects with a limit of their own: longer answers, say.

Pure: no database, no clock, no model. Not here: measuring (evals) and moving an alias (registry.services). A judge has
no vote; its numbers are carried in the evidence and shown.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from scipy.special import stdtr, stdtrit

from evals.statistics.estimate import Kind as IntervalKind
from evals.statistics.means import mean, standard_error
from evals.statistics.multiplicity import holm
from evals.statistics.paired import NothingInCommon, PairedDifference, paired_difference
from evals.statistics.power import minimal_detectable_effect


class Kind(StrEnum):
    """What to do with the checkpoint."""

    PROMOTE = "promote"
    CANARY = "canary"
    EXTEND = "extend"
    HOLD = "hold"
    ROLL_BACK = "roll_back"


class Stage(StrEnum):
    """Where the checkpoint stands while it is judged."""

    CANDIDATE = "candidate"  # serves nobody
    CANARY = "canary"  # serves a part of the traffic
    SERVING = "serving"  # serves, and is being checked against its predecessor


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """One baseline checkpoint's scores on a half."""

    role: str  # "serving" or "first"
    checkpoint: str  # "<policy>@<version>"
    scores: Mapping[str, float | None]  # problem -> [0, 1]; None is unscored


@dataclass(frozen=True, kw_only=True, slots=True)
class Half:
    """One half of the held-out problems, answered by the candidate and every baseline."""

    name: str  # "seen families" or "unseen families"
    families: Mapping[str, str]  # problem -> family; its keys are all problems asked
    candidate: Mapping[str, float | None]
    baselines: tuple[Arm, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Guard:
    """A side effect measured on each answer of the candidate and of the serving checkpoint; more is worse."""

    name: str  # "empty answers", "output tokens", ...
    candidate: Mapping[str, float]  # problem -> value; a problem without one is left out
    serving: Mapping[str, float]
    relative: bool = False  # the limit is a part of the serving checkpoint's mean


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Everything the decision may look at."""

    candidate: str  # "<policy>@<version>"
    halves: tuple[Half, ...]
    stage: Stage = Stage.CANDIDATE
    rounds: int = 1  # how often the gate has asked for answers by now
    guards: tuple[Guard, ...] = ()
    judge: Mapping[str, Any] | None = None  # shown, never weighed
    refusals: tuple[str, ...] = ()  # why some answers can never be had: asking again is of no use


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What counts as proof. Shares and differences are in [0, 1]; the report prints them as points."""

    margin: float = 0.10  # the loss that must be ruled out
    confidence: float = 0.95  # one-sided
    min_coverage: float = 0.95  # share of asked problems scored on both sides
    min_pairs: int = 30  # fewer cannot decide anything
    max_rounds: int = 3  # after that, missing scores hold instead of asking again
    canary_share: float = 0.0  # traffic share of a canary stage; 0 promotes at once
    margins: Mapping[str, float] = field(default_factory=dict)  # half -> its own margin
    superior_on: Sequence[str] = ()  # halves on which the candidate must be shown to be better than the serving one
    guards: Mapping[str, float] = field(default_factory=dict)  # guard -> by how much it may rise; others are only shown

    def __post_init__(self) -> None:
        """Raises ValueError naming the field."""
        shares = {"margin": self.margin, "min_coverage": self.min_coverage, "canary_share": self.canary_share}
        for name, value in (*shares.items(), *((f"margins.{half}", value) for half, value in self.margins.items())):
            if not 0 <= value <= 1:
                raise ValueError(f"{name} is {value}; give a share from 0 to 1")
        if not 0.5 <= self.confidence < 1:
            raise ValueError(f"confidence is {self.confidence}; give .5 to below 1")
        for name, value in self.guards.items():
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"guards.{name} is {value}; give 0 or more")

    def margin_of(self, half: str) -> float:
        return self.margins.get(half, self.margin)


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One half against one baseline."""

    half: str
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

    @property
    def coverage(self) -> float:
        return self.num_common / self.num_asked if self.num_asked else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardFinding:
    """One guard over the problems both sides have a value for."""

    name: str
    n: int
    mean_new: float | None
    mean_old: float | None
    rise: float | None  # of the means, in the guard's unit or as a part of mean_old; None: not known
    upper: float | None  # one-sided upper bound of the rise
    at_most: float | None  # None: only shown
    relative: bool
    passes: bool
    sentence: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """The outcome with its reasons; `to_json` is what the row, the page and `strop gate --json` print."""

    kind: Kind
    reasons: tuple[str, ...]
    candidate: str
    stage: Stage
    limits: Limits
    findings: tuple[Finding, ...]
    rounds: int
    guards: tuple[GuardFinding, ...] = ()
    judge: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "decision": self.kind.value,
            "reasons": list(self.reasons),
            "evidence": {
                "test": "non-inferiority",
                "candidate": self.candidate,
                "stage": self.stage.value,
                "rounds": self.rounds,
                "unit": "problem",
                "limits": asdict(self.limits),
                "findings": [{**asdict(finding), "coverage": finding.coverage} for finding in self.findings],
                "guards": [asdict(guard) for guard in self.guards],
                "judge": dict(self.judge) if self.judge is not None else None,
            },
        }


def decide(evidence: Evidence, limits: Limits | None = None) -> Decision:
    """Promote (or start a canary), ask for more answers, hold or roll back; every reason is a sentence with numbers."""
    limits = limits or Limits()
    findings = tuple(find(half, arm, limits=limits) for half in evidence.halves for arm in half.baselines)
    guards = tuple(check(guard, limits=limits) for guard in evidence.guards)
    kind, reasons = _weigh(evidence, limits, findings, guards)
    return Decision(
        kind=kind,
        reasons=reasons,
        candidate=evidence.candidate,
        stage=evidence.stage,
        limits=limits,
        findings=findings,
        rounds=evidence.rounds,
        guards=guards,
        judge=evidence.judge,
    )


def find(half: Half, arm: Arm, *, limits: Limits) -> Finding:
    """Compare the candidate with one baseline on the problems asked in this half."""
    asked = half.families.keys()
    margin = limits.margin_of(half.name)
    where = f"{half.name} against {arm.role} {arm.checkpoint}"
    try:
        difference = paired_difference(
            {key: value for key, value in half.candidate.items() if key in asked},
            {key: value for key, value in arm.scores.items() if key in asked},
            clusters=half.families,
            confidence=limits.confidence,
        )
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
        )
    passes = difference.lower > -margin
    detectable = None
    if difference.se:
        spread = difference.se * math.sqrt(difference.num_pairs)
        detectable = minimal_detectable_effect(sd=spread, n=difference.num_pairs)
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
    )


def check(guard: Guard, *, limits: Limits) -> GuardFinding:
    """The mean rise over common problems with its one-sided upper t bound; nothing measured cannot pass a limit."""
    keys = sorted(guard.candidate.keys() & guard.serving.keys())
    at_most = limits.guards.get(guard.name)
    new, old = [guard.candidate[key] for key in keys], [guard.serving[key] for key in keys]
    mean_new, mean_old = (mean(new), mean(old)) if keys else (None, None)
    rise, upper = _rise([a - b for a, b in zip(new, old, strict=True)], limits.confidence)
    if guard.relative:
        rise, upper = (None, None) if not mean_old else (_over(rise, mean_old), _over(upper, mean_old))
    passes = at_most is None or (upper is not None and upper < at_most)
    return GuardFinding(
        name=guard.name,
        n=len(keys),
        mean_new=mean_new,
        mean_old=mean_old,
        rise=rise,
        upper=upper,
        at_most=at_most,
        relative=guard.relative,
        passes=passes,
        sentence=_guard_in_words(guard, len(keys), rise, upper, at_most, limits),
    )


def _rise(differences: list[float], confidence: float) -> tuple[float | None, float | None]:
    if not differences:
        return None, None
    error = standard_error(differences)
    if error is None:
        return mean(differences), None
    return mean(differences), mean(differences) + float(stdtrit(len(differences) - 1, confidence)) * error


def _over(value: float | None, base: float) -> float | None:
    return None if value is None else value / base


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


def _weigh(
    evidence: Evidence, limits: Limits, findings: tuple[Finding, ...], guards: tuple[GuardFinding, ...]
) -> tuple[Kind, tuple[str, ...]]:
    if not findings:
        return Kind.HOLD, ("refused: there is no half with a baseline to compare with",)
    if unknown := sorted({*limits.margins, *limits.superior_on} - {finding.half for finding in findings}):
        return Kind.HOLD, (f"refused: the limits name {unknown[0]!r}, which was not measured",)
    if unmeasured := sorted(limits.guards.keys() - {guard.name for guard in guards}):
        return Kind.HOLD, (f"refused: the limits guard {unmeasured[0]!r}, which was not measured",)
    if evidence.stage is not Stage.CANDIDATE and (losses := _proven_losses(findings, limits)):
        return Kind.ROLL_BACK, losses
    if thin := tuple(sentence for finding in findings if (sentence := _too_thin(finding, limits))):
        if evidence.refusals:
            return Kind.HOLD, (*thin, *evidence.refusals)
        if evidence.rounds < limits.max_rounds:
            return Kind.EXTEND, thin
        return Kind.HOLD, (*thin, f"asked {evidence.rounds} times, which is the limit")
    failed = (
        *(finding.sentence for finding in findings if not finding.passes),
        *_not_superior(findings, limits),
        *(guard.sentence for guard in guards if not guard.passes),
    )
    if failed:
        return Kind.HOLD, failed
    passed = (
        *(finding.sentence for finding in findings),
        *(guard.sentence for guard in guards if guard.at_most is not None),
    )
    if evidence.stage is Stage.CANDIDATE and limits.canary_share > 0:
        return Kind.CANARY, (*passed, f"serves {limits.canary_share:.0%} of the traffic first")
    return Kind.PROMOTE, passed


def _too_thin(finding: Finding, limits: Limits) -> str | None:
    where = f"{finding.half} against {finding.role} {finding.checkpoint}"
    if finding.difference is None:
        return finding.sentence
    if finding.coverage < limits.min_coverage:
        return (
            f"{where}: {finding.num_unscored} of {finding.num_asked} problems are unscored on one side or both, "
            f"coverage {finding.coverage:.0%} is below {limits.min_coverage:.0%}"
        )
    if finding.num_common < limits.min_pairs:
        return f"{where}: {finding.num_common} problems in common, at least {limits.min_pairs} are needed"
    return None


def _proven_losses(findings: tuple[Finding, ...], limits: Limits) -> tuple[str, ...]:
    """Findings whose loss beyond the margin is certain, not merely possible; by Holm, since any of them is enough."""
    seen = [
        finding for finding in findings if finding.difference is not None and finding.num_common >= limits.min_pairs
    ]
    adjusted = holm([finding.p_worse for finding in seen])
    return tuple(
        f"{finding.half} against {finding.role} {finding.checkpoint}: upper {limits.confidence:.0%} bound "
        f"{points(finding.difference.upper)} is below {points(-finding.margin)} points"
        + (f" (p {_p(p_value)} by Holm over {len(seen)})" if len(seen) > 1 else "")
        for finding, p_value in zip(seen, adjusted, strict=True)
        if finding.difference is not None and p_value is not None and p_value < 1 - limits.confidence
    )


def _not_superior(findings: tuple[Finding, ...], limits: Limits) -> tuple[str, ...]:
    """Targets on which "better than the serving checkpoint" is not shown, by Holm over the targets."""
    targets = [finding for finding in findings if finding.half in limits.superior_on and finding.role == "serving"]
    adjusted = holm([finding.p_better for finding in targets])
    return tuple(
        f"{finding.half} against {finding.role} {finding.checkpoint}: "
        f"{'nothing in common' if finding.difference is None else points(finding.difference.mean) + ' points'}, "
        f"better is not shown (p {'unknown' if p_value is None else _p(p_value)} by Holm over {len(targets)})"
        for finding, p_value in zip(targets, adjusted, strict=True)
        if p_value is None or p_value >= 1 - limits.confidence
    )


def _in_words(difference: PairedDifference, *, passes: bool, margin: float, limits: Limits) -> str:
    kind = "exact lower" if difference.bound == "exact" else "lower"
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


def _guard_in_words(
    guard: Guard, n: int, rise: float | None, upper: float | None, at_most: float | None, limits: Limits
) -> str:
    if rise is None:
        return f"{guard.name}: not known on {n} problems"
    unit = "of the serving mean" if guard.relative else "per answer"

    def number(value: float) -> str:
        return f"{100 * value:+.1f} %".replace("-", "−") if guard.relative else f"{value:+.3g}".replace("-", "−")

    said = f"{guard.name}: {number(rise)} {unit} on {n} problems"
    if at_most is None:
        return said
    if upper is None:
        return f"{said}, too few for a bound"
    verdict = "below" if upper < at_most else "not below"
    return f"{said}, upper {limits.confidence:.0%} bound {number(upper)} {verdict} {number(at_most)}"


def _p(value: float) -> str:
    return "< .001" if value < 0.001 else f"{value:.3f}".lstrip("0")


def points(share: float) -> str:
    """As reasons write a share or a difference: -.031 -> −3.1."""
    return f"{100 * share:+.1f}".replace("-", "−")
