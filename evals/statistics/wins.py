"""Win rate of one side in pairwise comparisons, ties being half a win.

Invalid and failed judgements are not results: they stay outside the rate and are counted beside it.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from scipy.special import ndtri

from evals.statistics.means import clustered_standard_error, mean, standard_error


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
    low: float | None  # two-sided normal interval, cut to [0, 1]
    high: float | None
    interval: str = "normal"


def win_rate(
    results: Sequence[float | None], *, clusters: Sequence[Hashable] | None = None, confidence: float = 0.95
) -> WinRate:
    """Results are 1 (win), .5 (tie), 0 (loss) or None (undecided); a swapped pair must already be one result."""
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
    if rate is not None and (width := clustered if clusters is not None else se) is not None:
        half_width = float(ndtri(0.5 + confidence / 2)) * width
        low, high = max(0.0, rate - half_width), min(1.0, rate + half_width)
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
    )
