"""Intervals for a share: accept share, pass rate. Wilson's, never Wald's.

An accept share over users who have several turns each uses `wilson_clustered`: the same formula at a smaller,
effective n.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from evals.statistics.distributions import ndtri
from evals.statistics.estimate import CONFIDENCE, Estimate, Kind, unknown
from evals.statistics.means import clustered_standard_error


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """successes / n with its two-sided interval.

    Example: 8 of 10 -> share .8, low .49016, high .94332, interval "wilson"
    """

    successes: int
    n: int
    share: float | None  # None when n is 0
    low: float  # 0 when n is 0: nothing is known
    high: float  # 1 when n is 0
    interval: Kind  # wilson or wilson_clustered
    effective_n: float  # n itself, or n over the design effect
    confidence: float = CONFIDENCE
    num_clusters: int | None = None  # None: independent trials

    def estimate(self, *, num_asked: int | None = None) -> Estimate:
        """As every other number; `num_asked` counts trials without an outcome too. No SE: the interval is not one's."""
        asked = self.n if num_asked is None else num_asked
        if self.share is None:
            why = f"none of {asked} is scored" if asked else "no data"
            return unknown(why, num_asked=asked, num_clusters=self.num_clusters, confidence=self.confidence)
        return Estimate(
            value=self.share, se=None, low=self.low, high=self.high, interval=self.interval,
            confidence=self.confidence, n=self.n, num_asked=asked, num_clusters=self.num_clusters,
        )  # fmt: skip


def wilson(successes: int, n: int, *, confidence: float = CONFIDENCE) -> Share:
    """Wilson score interval of `successes` in `n` independent trials; n = 0 gives share None and [0, 1]."""
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes in {n} trials is not a share")
    share = successes / n if n else None
    low, high = wilson_at(share or 0.0, n, confidence=confidence)
    return Share(
        successes=successes, n=n, share=share, low=low, high=high, interval=Kind.WILSON, effective_n=float(n),
        confidence=confidence,
    )  # fmt: skip


def wilson_clustered(
    outcomes: Sequence[bool], clusters: Sequence[Hashable | None], *, confidence: float = CONFIDENCE
) -> Share:
    """Wilson at n / max(1, design effect), clusters being users; a null user is a cluster of its own.

    The design effect is the clustered variance (with factor G/(G-1)) over p(1-p)/n. Where all outcomes are equal it
    cannot be estimated and counts as 1; turns of one single user count as one observation, the worst case.
    """
    n, successes = len(outcomes), sum(map(bool, outcomes))
    labels = [("null", index) if cluster is None else ("user", cluster) for index, cluster in enumerate(clusters)]
    if len(labels) != n:
        raise ValueError(f"{n} outcomes came with {len(labels)} clusters; send one cluster per outcome")
    share = successes / n if n else None
    effective_n = n / _design_effect(share, outcomes, labels) if share is not None else 0.0
    low, high = wilson_at(share or 0.0, effective_n, confidence=confidence)
    return Share(
        successes=successes, n=n, share=share, low=low, high=high, interval=Kind.WILSON_CLUSTERED,
        effective_n=effective_n, confidence=confidence, num_clusters=len(set(labels)),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class ShareDifference:
    """first - second of two independent shares.

    Example: 56 of 70 and 48 of 80 -> .2, low .05243, high .33387, interval "newcombe"
    """

    difference: float | None  # None when one side has no trials
    low: float  # -1 when nothing is known
    high: float
    interval: Kind = Kind.NEWCOMBE


def compare_shares(first: Share, second: Share) -> Estimate:
    """first - second of two independent groups; its n is the smaller group's, since that is what limits it."""
    n, num_clusters = min(first.n, second.n), None
    if first.num_clusters is not None and second.num_clusters is not None:
        num_clusters = first.num_clusters + second.num_clusters
    if first.share is None or second.share is None:
        return unknown("one side has no trials", num_clusters=num_clusters, confidence=first.confidence)
    found = newcombe((first.share, first.low, first.high), (second.share, second.low, second.high))
    return Estimate(
        value=found.difference, se=None, low=found.low, high=found.high, interval=found.interval,
        confidence=first.confidence, n=n, num_asked=n, num_clusters=num_clusters,
    )  # fmt: skip


def newcombe(first: tuple[float, float, float] | None, second: tuple[float, float, float] | None) -> ShareDifference:
    """Newcombe's hybrid score interval from each side's (share, low, high), None for a side without trials.

    The bounds may be Wilson's or Wilson's at an effective n: the result is then clustered as they are.
    """
    if first is None or second is None:
        return ShareDifference(difference=None, low=-1.0, high=1.0)
    (a, a_low, a_high), (b, b_low, b_high) = first, second
    return ShareDifference(
        difference=a - b,
        low=max(-1.0, a - b - math.hypot(a - a_low, b_high - b)),
        high=min(1.0, a - b + math.hypot(a_high - a, b - b_low)),
    )


def _design_effect(share: float, outcomes: Sequence[bool], labels: Sequence[Hashable]) -> float:
    n = len(outcomes)
    if len(set(labels)) == 1:
        return float(n)
    binomial_variance = share * (1 - share) / n
    if binomial_variance == 0:
        return 1.0
    clustered = clustered_standard_error([float(outcome) for outcome in outcomes], labels)
    assert clustered is not None
    return max(1.0, clustered**2 / binomial_variance)


def wilson_at(share: float, n: float, *, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Wilson's bounds of a share at an n that need not be whole; nothing is known at n = 0."""
    if n == 0:
        return 0.0, 1.0
    z = float(ndtri(0.5 + confidence / 2))
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half_width = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # At 0 and n the bound is exactly 0 or 1; rounding would leave 1e-17 there.
    low = 0.0 if share == 0 else max(0.0, centre - half_width)
    high = 1.0 if share == 1 else min(1.0, centre + half_width)
    return low, high
