"""How far a reward model can be trusted, from its scores of pairs it did not learn from. Pure numbers.

A pair's scores claim a probability that its chosen answer is the better one: sigma(s_chosen - s_rejected).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from evals.statistics.distributions import ndtri
from evals.statistics.estimate import CONFIDENCE
from evals.statistics.proportions import wilson_clustered

NUM_BINS = 5  # of equal width over [.5, 1], the confidence in the answer that scores higher


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredPair:
    chosen: float
    rejected: float
    chosen_length: int  # tokens of the answer, without the prompt
    rejected_length: int
    person: str  # whose preference it is; those of one person are not independent

    @property
    def is_right(self) -> bool:
        """Equal scores tell nobody anything: wrong."""
        return self.chosen > self.rejected

    @property
    def confidence(self) -> float:
        """The probability claimed for the answer that scores higher."""
        return 1 / (1 + math.exp(-min(abs(self.chosen - self.rejected), 700.0)))


@dataclass(frozen=True, kw_only=True, slots=True)
class ShareOf:
    """A share of pairs with its 95 % interval: Wilson's, people being clusters."""

    share: float | None  # None: of no pair
    low: float
    high: float
    n: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Bin:
    """Pairs of like confidence."""

    low: float  # of the confidence, the upper end excluded but for the last
    high: float
    confidence: float | None  # mean; None in an empty bin
    accuracy: ShareOf


@dataclass(frozen=True, kw_only=True, slots=True)
class PairReport:
    accuracy: ShareOf
    ece: float  # expected calibration error: mean over pairs of |accuracy - confidence| of their bin
    bins: list[Bin]
    length_slope: float | None  # score per token, between the two answers of a pair; None where all are equally long
    length_slope_low: float | None  # 95 %
    length_slope_high: float | None
    shorter_wins: ShareOf  # accuracy where people liked the shorter answer better: low for one that counts tokens
    longer_wins: ShareOf


def report_pairs(pairs: Sequence[ScoredPair]) -> PairReport:
    """Raises ValueError without a pair."""
    if not pairs:
        raise ValueError("no pair to report on")
    bins = [_bin([one for one in pairs if _bin_of(one) == index], index) for index in range(NUM_BINS)]
    slope, low, high = length_slope(pairs)
    return PairReport(
        accuracy=_share(pairs),
        ece=sum(
            one.accuracy.n * abs(one.accuracy.share - one.confidence)
            for one in bins
            if one.accuracy.share is not None and one.confidence is not None
        )
        / len(pairs),
        bins=bins,
        length_slope=slope,
        length_slope_low=low,
        length_slope_high=high,
        shorter_wins=_share([one for one in pairs if one.chosen_length < one.rejected_length]),
        longer_wins=_share([one for one in pairs if one.chosen_length > one.rejected_length]),
    )


def length_slope(pairs: Sequence[ScoredPair]) -> tuple[float | None, float | None, float | None]:
    """Least squares through 0 of the difference in score on that in length: (slope, low, high).

    Differences within a pair, so that what the prompt does to both plays no part. The standard error allows for
    residuals of unequal size (White 1980).
    Example: differences in length 2, -1, in score 1, -.5 -> slope .5 +- 0
    """
    moves = [(one.chosen_length - one.rejected_length, one.chosen - one.rejected) for one in pairs]
    spread = sum(length**2 for length, _ in moves)
    if not spread:
        return None, None, None
    slope = sum(length * score for length, score in moves) / spread
    error = math.sqrt(sum((length * (score - slope * length)) ** 2 for length, score in moves)) / spread
    reach = ndtri((1 + CONFIDENCE) / 2) * error
    return slope, slope - reach, slope + reach


def _share(pairs: Sequence[ScoredPair]) -> ShareOf:
    found = wilson_clustered([one.is_right for one in pairs], [one.person for one in pairs])
    return ShareOf(share=found.share, low=found.low, high=found.high, n=found.n)


def _bin_of(pair: ScoredPair) -> int:
    return min(int((pair.confidence - 0.5) * 2 * NUM_BINS), NUM_BINS - 1)


def _bin(pairs: Sequence[ScoredPair], index: int) -> Bin:
    width = 0.5 / NUM_BINS
    return Bin(
        low=0.5 + index * width,
        high=0.5 + (index + 1) * width,
        confidence=fmean(one.confidence for one in pairs) if pairs else None,
        accuracy=_share(pairs),
    )
