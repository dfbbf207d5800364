"""Whether a canary may take over, told by the users it already answers; valid however often one looks.

Users are split by a hash, so the two arms differ by chance and by the checkpoint alone. Per user the share of answers
that were accepted is compared, less what the same user's share before the start foretells (CUPED), and the difference
gets a confidence sequence: it may be looked at after every turn without raising the false alarm rate. Guards are what
must not get worse meanwhile: errors, retries, abandoned turns, length, latency, and what the answers do: invalid tool
calls, questions back, answers without an edit. The total error is split evenly over accept share and
guards, so that all of them together alarm falsely at most as often as the level says.

    roll back   users of the canary are shown to accept less, or a guard is shown to be beyond its limit
    promote     the loss that must be ruled out is ruled out, and every guard is shown to be within its limit
    extend      neither is shown yet
    hold        neither was shown within the time allowed

Pure: no database and no clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from evals.statistics.cuped import difference_of_arms
from evals.statistics.estimate import Estimate
from evals.statistics.means import mean
from evals.statistics.sequential import MIN_N, look
from rl_online.gate.decision import Kind
from rl_online.gate.words import points


@dataclass(frozen=True, kw_only=True, slots=True)
class User:
    """One user in one arm. Shares and means are over that user's turns in the experiment."""

    accept_share: float | None  # None: none of the turns is decided
    accept_share_before: float | None  # over the time before the start; None: not seen then
    guards: Mapping[str, float]  # guard -> that user's mean; a guard that was not measured is left out


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardLimit:
    """How much a user's mean may rise, in the guard's own unit; or, `relative`, as a part of the serving arm's mean."""

    name: str
    at_most: float
    scale: float  # the size of changes one expects, in the same unit: what the sequence is tuned for
    relative: bool = False


GUARDS = (
    GuardLimit(name="error share", at_most=0.02, scale=0.02),
    GuardLimit(name="retry share", at_most=0.05, scale=0.05),
    GuardLimit(name="output tokens", at_most=0.25, scale=0.25, relative=True),
    GuardLimit(name="latency", at_most=0.25, scale=0.25, relative=True),
    GuardLimit(name="abandon share", at_most=0.05, scale=0.05),
    GuardLimit(name="invalid tool calls", at_most=0.02, scale=0.02),
    GuardLimit(name="questions back", at_most=0.05, scale=0.05),
    GuardLimit(name="without an edit", at_most=0.05, scale=0.05),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveLimits:
    """What counts as shown. Shares and differences are in [0, 1]; reports print them as points."""

    margin: float = 0.05  # the loss of accept share that must be ruled out
    scale: float = 0.05  # the size of effects one expects; chosen before the start
    confidence: float = 0.95  # of everything together, at all times together
    min_users: int = MIN_N // 2  # in each arm
    max_days: float = 14.0  # after that it is held
    guards: tuple[GuardLimit, ...] = GUARDS


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveEvidence:
    """What happened since the canary began."""

    canary: str  # "<policy>@<version>"
    serving: str
    share: float  # of users, as configured now
    days: float  # since the start
    new: Sequence[User]
    old: Sequence[User]
    num_crossed: int = 0  # users answered by both arms; they are left out


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveFinding:
    """One measured quantity, canary minus serving."""

    name: str
    unit: str  # "points", or "of the serving arm's mean"
    limit: float  # accept share: minus the margin; a guard: what it may rise by
    difference: Estimate  # a confidence sequence; undefined while too little is known
    mean_new: float | None
    mean_old: float | None
    num_new: int  # users
    num_old: int
    p_value: float | None  # always valid, of no difference
    is_within: bool  # shown to keep the limit
    is_beyond: bool  # shown to break it
    sentence: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveDecision:
    kind: Kind  # extend, promote, hold or roll back
    reasons: tuple[str, ...]
    findings: tuple[LiveFinding, ...]
    evidence: LiveEvidence
    limits: LiveLimits

    def to_json(self) -> dict[str, Any]:
        """What the permanent record keeps; users are counted in it, not listed."""
        seen = self.evidence
        return {
            "test": "confidence sequence",
            "candidate": seen.canary,
            "stage": "canary",
            "unit": "user",
            "serving": seen.serving,
            "share": seen.share,
            "days": round(seen.days, 4),
            "num_crossed": seen.num_crossed,
            "live_limits": asdict(self.limits),
            "live_findings": [asdict(finding) for finding in self.findings],
        }


def decide_live(evidence: LiveEvidence, limits: LiveLimits | None = None) -> LiveDecision:
    """One look. It may be repeated at any time; the first promote or roll back counts."""
    limits = limits or LiveLimits()
    measured = [guard for guard in limits.guards if _has(evidence, guard.name)]
    confidence = 1 - (1 - limits.confidence) / (1 + len(measured))
    findings = (
        _acceptance(evidence, limits, confidence),
        *(_guarded(evidence, limits, guard, confidence) for guard in measured),
    )
    kind, reasons = _weigh(evidence, limits, findings)
    return LiveDecision(kind=kind, reasons=reasons, findings=findings, evidence=evidence, limits=limits)


def _weigh(
    evidence: LiveEvidence, limits: LiveLimits, findings: tuple[LiveFinding, ...]
) -> tuple[Kind, tuple[str, ...]]:
    if broken := tuple(finding.sentence for finding in findings if finding.is_beyond):
        return Kind.ROLL_BACK, broken
    if all(finding.is_within for finding in findings):
        return Kind.PROMOTE, tuple(finding.sentence for finding in findings)
    open_ones = tuple(finding.sentence for finding in findings if not finding.is_within)
    if evidence.days >= limits.max_days:
        return Kind.HOLD, (*open_ones, f"not shown within {limits.max_days:g} days, which is the limit")
    return Kind.EXTEND, open_ones


def _acceptance(evidence: LiveEvidence, limits: LiveLimits, confidence: float) -> LiveFinding:
    before = [
        user.accept_share_before
        for user in (*evidence.new, *evidence.old)
        if user.accept_share is not None and user.accept_share_before is not None
    ]
    # A user who was not seen before is given the mean, so nothing is taken out of that user's share.
    usual = mean(before) if before else 0.0
    arms = [
        [
            (user.accept_share, usual if user.accept_share_before is None else user.accept_share_before)
            for user in arm
            if user.accept_share is not None
        ]
        for arm in (evidence.new, evidence.old)
    ]
    new, old = ([pair[0] for pair in arm] for arm in arms)
    effect = difference_of_arms(
        (new, [pair[1] for pair in arms[0]]), (old, [pair[1] for pair in arms[1]]), confidence=confidence
    )
    seen = look(effect, tau=limits.scale, min_n=2 * limits.min_users, confidence=confidence)
    enough = min(len(new), len(old)) >= limits.min_users
    low, high = seen.estimate.low, seen.estimate.high
    within = enough and low is not None and low > -limits.margin
    beyond = enough and high is not None and high < 0
    return LiveFinding(
        name="accept share",
        unit="points",
        limit=-limits.margin,
        difference=seen.estimate,
        mean_new=_mean(new),
        mean_old=_mean(old),
        num_new=len(new),
        num_old=len(old),
        p_value=seen.p_value,
        is_within=within and not beyond,
        is_beyond=beyond,
        sentence=_acceptance_in_words(seen.estimate, new, old, limits, enough=enough, within=within, beyond=beyond),
    )


def _guarded(evidence: LiveEvidence, limits: LiveLimits, guard: GuardLimit, confidence: float) -> LiveFinding:
    new, old = ([user.guards[guard.name] for user in arm if guard.name in user.guards] for arm in _arms(evidence))
    base = _mean(old)
    scale = base if guard.relative else 1.0
    if scale:
        new, old = [value / scale for value in new], [value / scale for value in old]
    flat = [0.0] * len(new), [0.0] * len(old)
    effect = difference_of_arms((new, flat[0]), (old, flat[1]), confidence=confidence)
    seen = look(effect, tau=guard.scale, min_n=2 * limits.min_users, confidence=confidence)
    enough = min(len(new), len(old)) >= limits.min_users
    low, high = seen.estimate.low, seen.estimate.high
    same = enough and len({*new, *old}) == 1  # e.g. no error on either side: nothing varied, and nothing rose
    within = same or (enough and high is not None and high < guard.at_most)
    beyond = enough and low is not None and low > guard.at_most
    unit = "of the serving arm's mean" if guard.relative else "points"
    said = "shown within" if within else "shown beyond" if beyond else "not shown within"
    if same:
        value = "none" if not any(new) else "the same"
        sentence = f"{guard.name}: {value} among {len(new)} users of the canary and {len(old)} others"
    elif low is None or high is None or not enough:
        sentence = f"{guard.name}: too few users, {_too_few(len(new), len(old), limits)}"
    else:
        assert seen.estimate.value is not None
        sentence = (
            f"{guard.name}: {points(seen.estimate.value)} [{points(low)}, {points(high)}] {unit}, "
            f"{said} the limit of {points(guard.at_most)}"
        )
    return LiveFinding(
        name=guard.name,
        unit=unit,
        limit=guard.at_most,
        difference=seen.estimate,
        mean_new=None if _mean(new) is None else _mean(new) * (scale or 1.0),  # type: ignore[operator]
        mean_old=base,
        num_new=len(new),
        num_old=len(old),
        p_value=seen.p_value,
        is_within=within,
        is_beyond=beyond,
        sentence=sentence,
    )


def _acceptance_in_words(
    estimate: Estimate,
    new: Sequence[float],
    old: Sequence[float],
    limits: LiveLimits,
    *,
    enough: bool,
    within: bool,
    beyond: bool,
) -> str:
    if not enough or estimate.value is None or estimate.low is None or estimate.high is None:
        why = _too_few(len(new), len(old), limits) if not enough else estimate.undefined
        return f"accept share: not known yet, {why}"
    interval = f"{points(estimate.value)} points [{points(estimate.low)}, {points(estimate.high)}]"
    if beyond:
        said = "users are shown to accept less"
    elif within:
        said = f"a loss of {points(limits.margin).lstrip('+')} points is ruled out"
    else:
        said = f"a loss of {points(limits.margin).lstrip('+')} points is not ruled out"
    return f"accept share: {interval} by {len(new)} users of the canary against {len(old)} others, {said}"


def _too_few(num_new: int, num_old: int, limits: LiveLimits) -> str:
    return f"{num_new} users of the canary and {num_old} others; {limits.min_users} of each are needed"


def _has(evidence: LiveEvidence, guard: str) -> bool:
    return any(guard in user.guards for arm in _arms(evidence) for user in arm)


def _arms(evidence: LiveEvidence) -> tuple[Sequence[User], Sequence[User]]:
    return evidence.new, evidence.old


def _mean(values: Sequence[float]) -> float | None:
    return mean(values) if values else None
