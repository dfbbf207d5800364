"""Side effects of the answers: by how much each rose, and whether that is within its limit."""

from dataclasses import dataclass

from evals.statistics.distributions import stdtrit
from evals.statistics.means import mean, standard_error
from rl_online.gate.evidence import Guard
from rl_online.gate.limits import Limits


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
        sentence=_in_words(guard, len(keys), rise, upper, at_most, limits),
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


def _in_words(
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
