"""Promote, canary, extend, hold or roll back; every reason is a sentence with numbers."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from rl_online.gate.evidence import Evidence, Half, Stage
from rl_online.gate.findings import Finding, Target, find, proven_losses, targets_of, too_thin
from rl_online.gate.forgetting import ForgettingFinding, check_forgetting
from rl_online.gate.guards import GuardFinding, check
from rl_online.gate.limits import Limits
from rl_online.gate.parts import covering, names_of
from rl_online.gate.reach import Reach, reaches
from rl_online.gate.votes import Vote, vote_of


class Kind(StrEnum):
    """What to do with the checkpoint."""

    PROMOTE = "promote"
    CANARY = "canary"
    EXTEND = "extend"
    HOLD = "hold"
    ROLL_BACK = "roll_back"


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
    forgetting: ForgettingFinding | None = None
    targets: tuple[Target, ...] = ()
    reach: tuple[Reach, ...] = ()
    vote: Vote | None = None
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
                "targets": [asdict(target) for target in self.targets],
                "reach": [{**asdict(reach), "coverage": reach.coverage} for reach in self.reach],
                "guards": [asdict(guard) for guard in self.guards],
                "forgetting": asdict(self.forgetting) if self.forgetting is not None else None,
                "vote": asdict(self.vote) if self.vote is not None else None,
                "judge": dict(self.judge) if self.judge is not None else None,
            },
        }


def decide(evidence: Evidence, limits: Limits | None = None) -> Decision:
    """Promote (or start a canary), ask for more answers, hold or roll back."""
    limits = limits or Limits()
    findings = tuple(
        find(half, arm, limits=limits, title=_title(half, evidence))
        for half in evidence.halves
        for arm in half.baselines
    )
    guards = tuple(check(guard, limits=limits) for guard in evidence.guards)
    forgetting = None if evidence.forgetting is None else check_forgetting(evidence.forgetting, limits)
    targets, vote = targets_of(findings, limits), vote_of(evidence.wins, limits.judged)
    kind, reasons = _weigh(evidence, limits, findings, guards, forgetting, targets, vote)
    return Decision(
        kind=kind,
        reasons=reasons,
        candidate=evidence.candidate,
        stage=evidence.stage,
        limits=limits,
        findings=findings,
        rounds=evidence.rounds,
        guards=guards,
        forgetting=forgetting,
        targets=targets,
        reach=reaches(evidence, limits),
        vote=vote,
        judge=evidence.judge,
    )


def _title(half: Half, evidence: Evidence) -> str:
    """Reasons name the suite where there are several."""
    is_one_of_several = len({*evidence.suites, *(one.suite for one in evidence.halves)}) > 1
    return f"{half.suite}: {half.name}" if is_one_of_several else half.name


def _weigh(
    evidence: Evidence,
    limits: Limits,
    findings: tuple[Finding, ...],
    guards: tuple[GuardFinding, ...],
    forgetting: ForgettingFinding | None,
    targets: tuple[Target, ...],
    vote: Vote | None,
) -> tuple[Kind, tuple[str, ...]]:
    if refusals := _refusals(evidence, limits, findings, guards):
        return Kind.HOLD, refusals
    if evidence.stage is not Stage.CANDIDATE and (losses := proven_losses(findings, limits)):
        return Kind.ROLL_BACK, losses
    if thin := tuple(sentence for finding in findings if (sentence := too_thin(finding, limits))):
        if evidence.refusals:
            return Kind.HOLD, (*thin, *evidence.refusals)
        if evidence.rounds < limits.max_rounds:
            return Kind.EXTEND, thin
        return Kind.HOLD, (*thin, f"asked {evidence.rounds} times, which is the limit")
    failed = (
        *(finding.sentence for finding in findings if not finding.passes),
        *(target.sentence for target in targets if not target.passes),
        *(guard.sentence for guard in guards if not guard.passes),
        *([forgetting.sentence] if forgetting is not None and not forgetting.passes else []),
        *([vote.sentence] if vote is not None and not vote.passes else []),
    )
    if failed:
        return Kind.HOLD, failed
    passed = (
        *(finding.sentence for finding in findings),
        *(target.sentence for target in targets),
        *(guard.sentence for guard in guards if guard.at_most is not None),
        *([forgetting.sentence] if forgetting is not None else []),
        *([vote.sentence] if vote is not None else []),
    )
    if evidence.stage is Stage.CANDIDATE and limits.canary_share > 0:
        return Kind.CANARY, (*passed, f"serves {limits.canary_share:.0%} of the traffic first")
    return Kind.PROMOTE, passed


def _refusals(
    evidence: Evidence, limits: Limits, findings: tuple[Finding, ...], guards: tuple[GuardFinding, ...]
) -> tuple[str, ...]:
    """What the limits ask about and nobody measured: it cannot be decided, now or after asking again."""
    if not findings:
        return ("refused: there is no half with a baseline to compare with",)
    if missing := [suite for suite in evidence.suites if suite not in {finding.suite for finding in findings}]:
        return tuple(f"refused: {suite} has no problem to compare on" for suite in missing)
    covered = {name for finding in findings for name in covering(finding.suite, finding.half)}
    exact = {name for finding in findings for name in names_of(finding.suite, finding.half)}
    if unknown := sorted({*(set(limits.margins) - covered), *(set(limits.superior_on) - exact)}):
        return (f"refused: the limits name {unknown[0]!r}, which was not measured",)
    if unmeasured := sorted(limits.guards.keys() - {guard.name for guard in guards}):
        return (f"refused: the limits guard {unmeasured[0]!r}, which was not measured",)
    if limits.judged is not None and evidence.wins is None:
        return ("refused: the limits ask for a judge's vote, and nothing was judged",)
    return ()
