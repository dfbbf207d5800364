"""One type for every number with an uncertainty: the value, its interval and the interval's kind, n, coverage,
clusters.

What cannot be known is None with its reason, never 0 and never NaN: 0 and NaN both travel on as if they were known.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from evals.statistics.distributions import ndtri, stdtrit

CONFIDENCE = 0.95


class Kind(StrEnum):
    """Which formula gave an interval."""

    NONE = "none"  # there is no interval
    WILSON = "wilson"
    WILSON_CLUSTERED = "wilson_clustered"
    NEWCOMBE = "newcombe"
    NORMAL = "normal"
    CLUSTERED_NORMAL = "clustered normal"
    T = "t"
    CLUSTERED_T = "clustered t"
    LOG_CLUSTERED_T = "log clustered t"
    EXACT = "exact"
    HESSIAN = "hessian"
    SANDWICH = "sandwich"
    PERCENTILE = "percentile bootstrap"
    CLUSTERED_PERCENTILE = "clustered percentile bootstrap"
    BCA = "bca bootstrap"
    CLUSTERED_BCA = "clustered bca bootstrap"
    SEQUENCE = "confidence sequence"


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A number with what is needed to judge it.

    Example: 6 wins, 3 ties, 1 loss, 2 unscored -> value .75, se .1118, n 10, num_asked 12, coverage .8333
    """

    value: float | None  # None: undefined
    se: float | None  # standard error; None: cannot be known from this
    low: float | None  # two-sided at `confidence`; None: cannot be known from this
    high: float | None
    interval: Kind
    confidence: float  # of the interval, e.g. .95
    n: int  # observations the value rests on
    num_asked: int  # those, and the ones without a score
    num_clusters: int | None  # None: every observation stands for itself
    undefined: str = ""  # why the value, or else its interval, is None

    def __post_init__(self) -> None:
        assert not any(number is not None and math.isnan(number) for number in (self.value, self.se, self.low))
        assert (self.value is not None and self.low is not None) or self.undefined, "say why it is undefined"
        assert self.n <= self.num_asked

    @property
    def coverage(self) -> float | None:
        """Share of what was asked that has a score; None when nothing was asked."""
        return self.n / self.num_asked if self.num_asked else None


def unknown(
    why: str,
    *,
    value: float | None = None,
    se: float | None = None,
    n: int = 0,
    num_asked: int | None = None,
    num_clusters: int | None = None,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """No interval, and without `value` no number either; `why` is a sentence for a person."""
    return Estimate(
        value=value, se=se, low=None, high=None, interval=Kind.NONE, confidence=confidence, n=n,
        num_asked=n if num_asked is None else num_asked, num_clusters=num_clusters, undefined=why,
    )  # fmt: skip


def around(
    value: float,
    se: float | None,
    *,
    n: int,
    freedom: float | None = None,
    num_asked: int | None = None,
    num_clusters: int | None = None,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """value -+ t * se with `freedom` degrees of freedom, or -+ z * se without. An error of None or 0 gives no interval.

    An error of 0 means that nothing varied in what was seen, which is not the same as certainty.
    """
    if not se:
        alone = "one cluster" if num_clusters == 1 else "one observation"
        return unknown(
            f"{alone if se is None else 'what never varied'} says nothing about the error",
            value=value, se=se, n=n, num_asked=num_asked, num_clusters=num_clusters, confidence=confidence,
        )  # fmt: skip
    quantile = float(ndtri(0.5 + confidence / 2) if freedom is None else stdtrit(freedom, 0.5 + confidence / 2))
    clustered = num_clusters is not None
    if freedom is None:
        kind = Kind.CLUSTERED_NORMAL if clustered else Kind.NORMAL
    else:
        kind = Kind.CLUSTERED_T if clustered else Kind.T
    return Estimate(
        value=value, se=se, low=value - quantile * se, high=value + quantile * se, interval=kind,
        confidence=confidence, n=n, num_asked=n if num_asked is None else num_asked, num_clusters=num_clusters,
    )  # fmt: skip


def scored(values: Sequence[float | None]) -> list[tuple[int, float]]:
    """(place, value) of those that have one. None is unscored; NaN and infinity are refused by their place."""
    for place, value in enumerate(values):
        if value is not None and not math.isfinite(value):
            raise ValueError(f"value {place} is {value}; a value that is not known is None")
    return [(place, float(value)) for place, value in enumerate(values) if value is not None]


def finite(values: Sequence[float] | NDArray[np.float64], *, what: str) -> NDArray[np.float64]:
    """As an array; NaN and infinity are refused by their place. What is not known was to be left out before."""
    numbers = np.asarray(values, dtype=float)
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        raise ValueError(f"{what} {wrong[0]} is {numbers[wrong[0]]}; leave out what is not known")
    return numbers
