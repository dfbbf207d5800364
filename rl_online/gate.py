"""Whether a checkpoint has proved itself: a non-inferiority decision on scores that are already measured.

On each half (families seen in traffic, families never shown) and against each baseline (the serving checkpoint, the
first one) the candidate answered the same problems. It passes where the lower one-sided 95 % bound of the paired
difference lies above minus the margin: it may be no better, but it is shown not to be worse by more than the margin.
The first checkpoint is among the baselines so that small losses cannot add up. The unit is the problem; the error
clustered by family is shown beside.

Pure: no database, no clock, no model. Not here: measuring (evals) and moving an alias (registry.services). A judge has
no vote; its numbers are carried in the evidence and shown.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from evals.statistics.paired import NothingInCommon, PairedDifference, paired_difference


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
class Evidence:
    """Everything the decision may look at."""

    candidate: str  # "<policy>@<version>"
    halves: tuple[Half, ...]
    stage: Stage = Stage.CANDIDATE
    rounds: int = 1  # how often the gate has asked for answers by now
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
    passes: bool
    sentence: str  # the finding in plain words and numbers

    @property
    def coverage(self) -> float:
        return self.num_common / self.num_asked if self.num_asked else 0.0


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
                "judge": dict(self.judge) if self.judge is not None else None,
            },
        }


def decide(evidence: Evidence, limits: Limits | None = None) -> Decision:
    """Promote (or start a canary), ask for more answers, hold or roll back; every reason is a sentence with numbers."""
    limits = limits or Limits()
    findings = tuple(find(half, arm, limits=limits) for half in evidence.halves for arm in half.baselines)
    kind, reasons = _weigh(evidence, limits, findings)
    return Decision(
        kind=kind,
        reasons=reasons,
        candidate=evidence.candidate,
        stage=evidence.stage,
        limits=limits,
        findings=findings,
        rounds=evidence.rounds,
        judge=evidence.judge,
    )


def find(half: Half, arm: Arm, *, limits: Limits) -> Finding:
    """Compare the candidate with one baseline on the problems asked in this half."""
    asked = half.families.keys()
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
            passes=False,
            sentence=f"{where}: refused, 0 problems in common out of {len(asked)} asked",
        )
    passes = difference.lower > -limits.margin
    return Finding(
        half=half.name,
        role=arm.role,
        checkpoint=arm.checkpoint,
        num_asked=len(asked),
        num_common=difference.num_pairs,
        num_unscored=len(asked) - difference.num_pairs,
        difference=difference,
        passes=passes,
        sentence=f"{where}: {_in_words(difference, passes=passes, limits=limits)}",
    )


def _weigh(evidence: Evidence, limits: Limits, findings: tuple[Finding, ...]) -> tuple[Kind, tuple[str, ...]]:
    if not findings:
        return Kind.HOLD, ("refused: there is no half with a baseline to compare with",)
    if evidence.stage is not Stage.CANDIDATE and (losses := _proven_losses(findings, limits)):
        return Kind.ROLL_BACK, losses
    if thin := tuple(sentence for finding in findings if (sentence := _too_thin(finding, limits))):
        if evidence.refusals:
            return Kind.HOLD, (*thin, *evidence.refusals)
        if evidence.rounds < limits.max_rounds:
            return Kind.EXTEND, thin
        return Kind.HOLD, (*thin, f"asked {evidence.rounds} times, which is the limit")
    if failed := tuple(finding.sentence for finding in findings if not finding.passes):
        return Kind.HOLD, failed
    passed = tuple(finding.sentence for finding in findings)
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
    """Findings whose upper bound already lies below minus the margin: the loss is certain, not merely possible."""
    return tuple(
        f"{finding.half} against {finding.role} {finding.checkpoint}: upper {limits.confidence:.0%} bound "
        f"{_points(finding.difference.upper)} is below {_points(-limits.margin)} points"
        for finding in findings
        if finding.difference is not None
        and finding.num_common >= limits.min_pairs
        and finding.difference.upper < -limits.margin
    )


def _in_words(difference: PairedDifference, *, passes: bool, limits: Limits) -> str:
    kind = "exact lower" if difference.bound == "exact" else "lower"
    comparison = "above" if passes else "not above"
    verdict = "not inferior" if passes else "inferiority is not ruled out"
    bound = f"{kind} {limits.confidence:.0%} bound {_points(difference.lower)}"
    return (
        f"{_points(difference.mean)} points on {difference.num_pairs} problems "
        f"({difference.better} better, {difference.worse} worse, {difference.equal} equal), "
        f"{bound} {comparison} {_points(-limits.margin)}: {verdict}"
    )


def _points(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", "−")
