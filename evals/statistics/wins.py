"""Win rate of one side in pairwise comparisons, ties being half a win.

Invalid and failed judgements are not results: they stay outside the rate and are counted beside it.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

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


def _design_effect(rate: float, n: int, clustered_se: float | None) -> float:
    """How many times larger the clustered variance is than that of n tosses; a single cluster is one observation."""
    if clustered_se is None:
        return float(n)
    tosses = rate * (1 - rate) / n
    return max(1.0, clustered_se**2 / tosses) if tosses else 1.0
