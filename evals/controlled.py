"""Who would win if both answers looked alike: strengths without style, and win rates at equal length. Pure.

Both say what the data they rest on carry: a file without answers and without counts of its own has neither.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from evals.statistics.battles import battles
from evals.statistics.bradley_terry import ELO_MIDDLE, ELO_PER_LOGIT
from evals.statistics.estimate import Estimate
from evals.statistics.length_control import fit_length_only
from evals.statistics.preferences import preference_rate
from evals.statistics.style_control import RIDGE, control, style_difference

LENGTH = "length"


@dataclass(frozen=True, kw_only=True, slots=True)
class StyledVote:
    """A decided comparison whose answers' style is known."""

    left: str
    right: str
    result: float  # 1 left, .5 neither, 0 right
    preference: float  # P(left wins); the result where nothing softer was said
    cluster: Hashable
    left_style: Mapping[str, float]  # e.g. {"length": 312, "headers": 0, "lists": 3, "bold": 1}
    right_style: Mapping[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class StyleControlled:
    """Bradley-Terry with style as covariates, pulled by a ridge."""

    strengths: Mapping[str, Estimate]  # on the Elo scale
    style: Mapping[str, Estimate]  # log odds of winning for one root mean square more of it
    ridge: float
    n: int


@dataclass(frozen=True, kw_only=True, slots=True)
class AtEqualLength:
    """One side against the baseline that every vote has on the left."""

    name: str
    baseline: str
    raw: Estimate  # mean preference for the side
    controlled: Estimate
    label: str  # of evals.statistics.length_control
    mean_length: float
    mean_baseline_length: float


def without_style(votes: Sequence[StyledVote]) -> StyleControlled | None:
    """None where no style ever differs between the two sides."""
    names = sorted({name for vote in votes for name in vote.left_style.keys() & vote.right_style.keys()})
    styles = {name: style_difference(*_sides(votes, name)) for name in names}
    styles = {name: values for name, values in styles.items() if any(values)}
    if not styles:
        return None
    played = battles(
        [vote.left for vote in votes],
        [vote.right for vote in votes],
        [vote.result for vote in votes],
        cluster=[vote.cluster for vote in votes],
    )
    found = control(played, styles, ridge=RIDGE)
    return StyleControlled(
        strengths={name: _on_elo_scale(one) for name, one in found.strengths.items()},
        style=found.style,
        ridge=RIDGE,
        n=len(votes),
    )


def _sides(votes: Sequence[StyledVote], name: str) -> tuple[list[float], list[float]]:
    return [vote.left_style.get(name, 0.0) for vote in votes], [vote.right_style.get(name, 0.0) for vote in votes]


def _on_elo_scale(one: Estimate) -> Estimate:
    def scaled(value: float | None, middle: float = ELO_MIDDLE) -> float | None:
        return None if value is None else middle + ELO_PER_LOGIT * value

    return replace(one, value=scaled(one.value), se=scaled(one.se, 0.0), low=scaled(one.low), high=scaled(one.high))


def at_equal_length(votes: Sequence[StyledVote]) -> list[AtEqualLength]:
    """Every side against the baseline; empty without one, or without lengths."""
    baselines = {vote.left for vote in votes}
    if len(baselines) != 1 or not all(LENGTH in vote.left_style and LENGTH in vote.right_style for vote in votes):
        return []
    by_name: dict[str, list[StyledVote]] = {}
    for vote in votes:
        by_name.setdefault(vote.right, []).append(vote)
    return [_at_equal_length(name, baselines.copy().pop(), of) for name, of in sorted(by_name.items())]


def _at_equal_length(name: str, baseline: str, votes: Sequence[StyledVote]) -> AtEqualLength:
    preferences = [1 - vote.preference for vote in votes]
    length_baseline, length_model = _sides(votes, LENGTH)
    found = fit_length_only(
        preferences, length_baseline=length_baseline, length_model=length_model,
        clusters=[vote.cluster for vote in votes],
    )  # fmt: skip
    return AtEqualLength(
        name=name,
        baseline=baseline,
        raw=preference_rate(preferences).rate,
        controlled=found.rate,
        label=found.label,
        mean_length=sum(length_model) / len(votes),
        mean_baseline_length=sum(length_baseline) / len(votes),
    )
