"""Win rate of one side in pairwise comparisons, ties being half a win.

Invalid and failed judgements are not results: they stay outside the rate and are counted beside it.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from evals.statistics.battles import Numbers, Places
from evals.statistics.estimate import CONFIDENCE, Estimate, Kind, unknown
from evals.statistics.means import clustered_standard_error, mean, standard_error
from evals.statistics.proportions import wilson_at


@dataclass(frozen=True, kw_only=True, slots=True)
class WinRate:
    """(wins + ties/2) / decided with its standard error.

    Example: 6 wins, 3 ties, 1 loss -> rate .75, se .1118
    """

    wins: int
    ties: int
    losses: int
    undecided: int  # invalid or error; not part of the rate
    rate: float | None  # None when nothing was decided
    se: float | None  # sd of {0, .5, 1} / sqrt(n); None for fewer than two
    clustered_se: float | None  # over items, when clusters were given
    low: float | None  # two-sided, Wilson's at the effective n; None when nothing was decided
    high: float | None
    interval: Kind = Kind.WILSON  # or WILSON_CLUSTERED, when clusters were given
    confidence: float = CONFIDENCE
    num_clusters: int | None = None  # of the decided; None: no clusters were given

    @property
    def n(self) -> int:
        """Decided results."""
        return self.wins + self.ties + self.losses

    @property
    def mirrored(self) -> "WinRate":
        """The other side's, from the same results."""
        return replace(
            self, wins=self.losses, losses=self.wins, rate=None if self.rate is None else 1 - self.rate,
            low=None if self.high is None else 1 - self.high, high=None if self.low is None else 1 - self.low,
        )  # fmt: skip

    def estimate(self) -> Estimate:
        """As every other number; its SE is the clustered one where clusters were given."""
        asked = self.n + self.undecided
        if self.rate is None:
            why = f"none of {asked} is decided" if asked else "no data"
            return unknown(why, num_asked=asked, num_clusters=self.num_clusters, confidence=self.confidence)
        return Estimate(
            value=self.rate, se=self.se if self.num_clusters is None else self.clustered_se, low=self.low,
            high=self.high, interval=self.interval, confidence=self.confidence, n=self.n, num_asked=asked,
            num_clusters=self.num_clusters,
        )  # fmt: skip


def win_rate(
    results: Sequence[float | None], *, clusters: Sequence[Hashable] | None = None, confidence: float = CONFIDENCE
) -> WinRate:
    """Results are 1 (win), .5 (tie), 0 (loss) or None (undecided); a swapped pair must already be one result.

    The interval is Wilson's with n over the design effect of the clusters, so that three wins of three are not taken
    for certainty. Ties count as coin tosses there: they make it no narrower.
    """
    unknown = set(results) - {0, 0.5, 1, None}
    if unknown:
        raise ValueError(f"{sorted(map(str, unknown))} are no results; use 1, .5, 0 or None")
    decided = [(index, value) for index, value in enumerate(results) if value is not None]
    values = [float(value) for _, value in decided]
    clustered = None
    if clusters is not None:
        clustered = clustered_standard_error(values, [clusters[index] for index, _ in decided])
    se = standard_error(values)
    rate = mean(values) if values else None
    low = high = None
    if rate is not None:
        effect = 1.0 if clusters is None else _design_effect(rate, len(values), clustered)
        low, high = wilson_at(rate, len(values) / effect, confidence=confidence)
    return WinRate(
        wins=values.count(1.0),
        ties=values.count(0.5),
        losses=values.count(0.0),
        undecided=len(results) - len(values),
        rate=rate,
        se=se,
        clustered_se=clustered,
        low=low,
        high=high,
        interval=Kind.WILSON if clusters is None else Kind.WILSON_CLUSTERED,
        confidence=confidence,
        num_clusters=None if clusters is None else len({clusters[index] for index, _ in decided}),
    )


def win_rates(
    group: Places, results: Numbers, clusters: Places, *, undecided: Places, confidence: float = CONFIDENCE
) -> list[WinRate]:
    """`win_rate` of every group at once, on columns: of a million results in a second.

    `group` [n] is a place in `undecided`, which counts for each group what has no result; `clusters` [n] numbers what
    ties results together.
    """
    size, count = len(undecided), np.bincount(group, minlength=len(undecided))
    won, tied = (np.bincount(group[results == value], minlength=size) for value in (1.0, 0.5))
    rates = (won + tied / 2) / np.maximum(count, 1)
    residuals = results - rates[group]
    squares = np.bincount(group, residuals**2, minlength=size)
    together = int(clusters.max()) + 1 if len(clusters) else 1
    keys, which = np.unique(group * together + clusters, return_inverse=True)
    sums, owner = np.bincount(which, residuals, minlength=len(keys)), keys // together
    num_clusters = np.bincount(owner, minlength=size)
    between = np.bincount(owner, sums**2, minlength=size)
    return [
        _of_sums(wins, ties, n - wins - ties, lost, variation, total, num, confidence)
        for wins, ties, n, lost, variation, total, num in zip(
            won.tolist(), tied.tolist(), count.tolist(), undecided.tolist(), squares.tolist(), between.tolist(),
            num_clusters.tolist(), strict=True,
        )
    ]  # fmt: skip


def _of_sums(
    wins: int,
    ties: int,
    losses: int,
    undecided: int,
    squares: float,
    between: float,
    num_clusters: int,
    confidence: float,
) -> WinRate:
    n = wins + ties + losses
    rate = (wins + ties / 2) / n if n else None
    se = math.sqrt(squares / (n - 1) / n) if n > 1 else None
    clustered = math.sqrt(num_clusters / (num_clusters - 1) * between) / n if num_clusters > 1 else None
    low = high = None
    if rate is not None:
        low, high = wilson_at(rate, n / _design_effect(rate, n, clustered), confidence=confidence)
    return WinRate(
        wins=wins, ties=ties, losses=losses, undecided=undecided, rate=rate, se=se, clustered_se=clustered, low=low,
        high=high, interval=Kind.WILSON_CLUSTERED, confidence=confidence, num_clusters=num_clusters,
    )  # fmt: skip


def _design_effect(rate: float, n: int, clustered_se: float | None) -> float:
    """How many times larger the clustered variance is than that of n tosses; a single cluster is one observation."""
    if clustered_se is None:
        return float(n)
    tosses = rate * (1 - rate) / n
    return max(1.0, clustered_se**2 / tosses) if tosses else 1.0
