"""How much better one checkpoint answers than another, problem by problem.

Both answered the same problems, so the difference is taken per problem first: most of the variance between problems
cancels. Not here: what the difference must be to promote (rl_online.gate).
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from evals.statistics.distributions import stdtr, stdtrit
from evals.statistics.estimate import Estimate, Kind
from evals.statistics.means import clustered_standard_error, mean, standard_error


class NothingInCommon(ValueError):
    """The two sides share no scored problem, so there is nothing to compare."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedDifference:
    """new - old over the problems both sides have a score for.

    Example: new {a: 1, b: 1, c: 0}, old {a: 0, b: 1, d: 1} -> two pairs (a, b), mean .5, one dropped on each side
    """

    num_pairs: int
    dropped_new: int  # scored by new only, or unscored by old
    dropped_old: int  # scored by old only, or unscored by new
    mean: float  # in [-1, 1] for scores in [0, 1]
    mean_new: float  # over the pairs
    mean_old: float  # over the pairs
    se: float | None  # None for a single pair
    num_clusters: int
    clustered_se: float | None  # with G/(G-1); None for a single cluster
    clustered_se_plain: float | None  # without the factor
    better: int
    worse: int
    equal: int
    lower: float  # one-sided lower bound
    upper: float  # one-sided upper bound
    bound: Kind  # T, or EXACT when every pair differs by the same amount
    confidence: float
    unpaired_se: float | None  # the error two unrelated samples would have: what pairing saves
    correlation: float | None  # of the two sides over problems; None where one side never varies

    def estimate(self) -> Estimate:
        """As every other number, two-sided (see `two_sided`); asked is every problem that either side has scored."""
        interval = two_sided(self)
        is_clustered = interval.kind == Kind.CLUSTERED_T
        return Estimate(
            value=self.mean, se=self.clustered_se if is_clustered else self.se, low=interval.low, high=interval.high,
            interval=interval.kind, confidence=interval.confidence, n=self.num_pairs,
            num_asked=self.num_pairs + self.dropped_new + self.dropped_old, num_clusters=self.num_clusters,
        )  # fmt: skip


def paired_difference(
    new: Mapping[str, float | None],
    old: Mapping[str, float | None],
    *,
    clusters: Mapping[str, Hashable] | None = None,
    confidence: float = 0.95,
) -> PairedDifference:
    """Join on keys and compare; None is unscored and drops its pair. Scores lie in [0, 1].

    A problem without an entry in `clusters` is a cluster of its own. Raises NothingInCommon when no pair is left.
    """
    scored_new, scored_old = _scored(new), _scored(old)
    keys = sorted(scored_new.keys() & scored_old.keys())
    if not keys:
        raise NothingInCommon(
            f"0 problems in common: {len(scored_new)} scored on one side, {len(scored_old)} on the other"
        )
    side_new, side_old = [scored_new[key] for key in keys], [scored_old[key] for key in keys]
    differences = [a - b for a, b in zip(side_new, side_old, strict=True)]
    known = clusters or {}
    labels: list[Hashable] = [("cluster", known[key]) if key in known else ("alone", key) for key in keys]
    lower, upper, bound = _bounds(differences, confidence)
    return PairedDifference(
        num_pairs=len(keys),
        dropped_new=len(scored_new) - len(keys),
        dropped_old=len(scored_old) - len(keys),
        mean=mean(differences),
        mean_new=mean(side_new),
        mean_old=mean(side_old),
        se=standard_error(differences),
        num_clusters=len(set(labels)),
        clustered_se=clustered_standard_error(differences, labels),
        clustered_se_plain=clustered_standard_error(differences, labels, small_sample=False),
        better=sum(difference > 0 for difference in differences),
        worse=sum(difference < 0 for difference in differences),
        equal=sum(difference == 0 for difference in differences),
        lower=lower,
        upper=upper,
        bound=bound,
        confidence=confidence,
        unpaired_se=_unpaired_error(side_new, side_old),
        correlation=_correlation(side_new, side_old),
    )


def _scored(scores: Mapping[str, float | None]) -> dict[str, float]:
    found = {key: value for key, value in scores.items() if value is not None}
    for key, value in found.items():
        if not math.isfinite(value):
            raise ValueError(f"the score of {key} is {value}; one that is not known is None")
    return found


def _unpaired_error(new: list[float], old: list[float]) -> float | None:
    errors = standard_error(new), standard_error(old)
    return None if errors[0] is None or errors[1] is None else math.hypot(*errors)  # type: ignore[arg-type]


def _correlation(new: list[float], old: list[float]) -> float | None:
    if len(set(new)) < 2 or len(set(old)) < 2:
        return None
    a, b = mean(new), mean(old)
    both = math.fsum((x - a) * (y - b) for x, y in zip(new, old, strict=True))
    return both / math.sqrt(math.fsum((x - a) ** 2 for x in new) * math.fsum((y - b) ** 2 for y in old))


def _bounds(differences: list[float], confidence: float) -> tuple[float, float, Kind]:
    """One-sided bounds at `confidence` each: mean -+ t * SE, or exact where the SE would be a false 0."""
    n, middle = len(differences), mean(differences)
    if len(set(differences)) == 1:
        # Nothing differed in n draws, so a deviating problem has probability at most 1 - (1-confidence)^(1/n);
        # the worst it can bring is -1 (or +1 for the upper bound).
        rare = 1 - (1 - confidence) ** (1 / n)
        return middle - rare * (middle + 1), middle + rare * (1 - middle), Kind.EXACT
    se = standard_error(differences)
    assert se is not None
    half_width = float(stdtrit(n - 1, confidence)) * se
    return middle - half_width, middle + half_width, Kind.T


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """Both bounds of a paired difference, and which formula gave them."""

    low: float
    high: float
    kind: Kind  # CLUSTERED_T, T, or EXACT when every pair differs by the same amount
    confidence: float  # two-sided


def two_sided(difference: PairedDifference) -> Interval:
    """The interval to draw; a difference made at one-sided 97.5 % gives 95 %.

    Clustered where that is the larger error: problems of one family are not independent facts. Few clusters make it
    wide (t with G - 1 degrees of freedom), which is the truth about few clusters.
    """
    level = 2 * difference.confidence - 1
    if difference.bound == Kind.EXACT:
        return Interval(low=difference.lower, high=difference.upper, kind=Kind.EXACT, confidence=level)
    assert difference.se is not None
    kind, error, freedom = Kind.T, difference.se, difference.num_pairs - 1
    if (difference.clustered_se or 0.0) > error and difference.num_clusters < difference.num_pairs:
        assert difference.clustered_se is not None
        kind, error, freedom = Kind.CLUSTERED_T, difference.clustered_se, difference.num_clusters - 1
    half_width = float(stdtrit(freedom, difference.confidence)) * error
    return Interval(
        low=max(-1.0, difference.mean - half_width),
        high=min(1.0, difference.mean + half_width),
        kind=kind,
        confidence=level,
    )


def p_value(difference: PairedDifference) -> float | None:
    """Two-sided, of the paired t test; None where every pair differs by the same amount, or there is only one."""
    if not difference.se:
        return None
    return 2 * float(stdtr(difference.num_pairs - 1, -abs(difference.mean / difference.se)))


def mcnemar_exact(better: int, worse: int) -> float:
    """Two-sided exact p-value on discordant pairs (the sign test); 1.0 when there are none."""
    n = better + worse
    tail = sum(math.comb(n, k) for k in range(min(better, worse) + 1))
    return min(1.0, 2 * tail / 2**n)
