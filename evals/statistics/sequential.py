"""Answers that stay valid however often one looks: the mixture sequential test, and its confidence sequence.

Robbins' normal mixture (Johari et al., arXiv 1512.04922): for an effect d with standard error s,
    L = s / sqrt(s^2 + tau^2) * exp(tau^2 d^2 / (2 s^2 (s^2 + tau^2))),
which, with s^2 = V / n, is sqrt(V / (V + n tau^2)) exp(n^2 tau^2 d^2 / (2 V (V + n tau^2))). Under no effect L exceeds
1 / alpha at any time with a chance of at most alpha, so stopping at the first L >= 1 / alpha is fair. tau is the size
of effects one expects, chosen before looking. Solved for d it gives an interval that holds at all times at once.

It takes s for known or well estimated: with an estimated one wait for MIN_N observations; `bounded_error` needs no
waiting for scores between two bounds. The price against a fixed sample size is an interval some 1.5 times as wide.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evals.statistics.estimate import CONFIDENCE, Estimate, Kind, unknown

MIN_N = 100  # observations, or clusters of them; fewer estimate their own error too badly for "at any time"

Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """One look at running data. Example: n 1000, d .05, V .5, tau^2 .01 -> L 2.3601, .05 -+ .06888, not decided."""

    estimate: Estimate  # interval: confidence sequence
    likelihood_ratio: float | None  # L; None while undefined
    p_value: float | None  # always valid: min(1, 1 / L); of several looks the smallest counts

    @property
    def is_decided(self) -> bool:
        """The effect is not 0, at the estimate's confidence."""
        return self.p_value is not None and self.p_value <= 1 - self.estimate.confidence


def look(effect: Estimate, *, tau: float, min_n: int = MIN_N, confidence: float = CONFIDENCE) -> Look:
    """Any estimate with a standard error: a difference of arms, a paired or clustered one, or a rating."""
    if tau <= 0:
        raise ValueError(f"tau is {tau}; give the size of effects you expect, above 0")
    why = effect.undefined
    independent = effect.n if effect.num_clusters is None else min(effect.n, effect.num_clusters)
    if effect.value is not None and independent < min_n:
        why = f"{independent} of the {min_n} independent observations that a running error needs"
    elif effect.value is not None and not effect.se:
        why = why or "what never varied says nothing about the error"
    if why or effect.value is None or effect.se is None:
        nothing = unknown(
            why or "it has no standard error", value=effect.value, se=effect.se, n=effect.n, num_asked=effect.num_asked,
            num_clusters=effect.num_clusters, confidence=confidence,
        )  # fmt: skip
        return Look(estimate=nothing, likelihood_ratio=None, p_value=None)
    ratio = float(likelihood_ratio(effect.value, effect.se, tau=tau))
    half = float(half_width(effect.se, tau=tau, alpha=1 - confidence))
    estimate = Estimate(
        value=effect.value, se=effect.se, low=effect.value - half, high=effect.value + half, interval=Kind.SEQUENCE,
        confidence=confidence, n=effect.n, num_asked=effect.num_asked, num_clusters=effect.num_clusters,
    )  # fmt: skip
    return Look(estimate=estimate, likelihood_ratio=ratio, p_value=min(1.0, 1 / ratio))


def likelihood_ratio(effect: float | Numbers, se: float | Numbers, *, tau: float) -> Numbers:
    """L, elementwise; infinity where the exponential overflows."""
    square = np.asarray(se) ** 2
    with np.errstate(over="ignore"):
        ratio: Numbers = np.sqrt(square / (square + tau**2)) * np.exp(
            tau**2 * np.asarray(effect) ** 2 / (2 * square * (square + tau**2))
        )
    return ratio


def half_width(se: float | Numbers, *, tau: float, alpha: float) -> Numbers:
    """The effect at which L reaches 1 / alpha, elementwise."""
    square = np.asarray(se) ** 2
    width: Numbers = np.sqrt(
        square * (square + tau**2) / tau**2 * (2 * math.log(1 / alpha) + np.log1p(tau**2 / square))
    )
    return width


def bounded_error(n: int, *, low: float, high: float) -> float:
    """An error to use instead of an estimated one for the mean of n independent values in [low, high].

    (high - low) / (2 sqrt(n)): such values are sub-Gaussian with that variance (Hoeffding), so the sequence then holds
    from the first observation on.
    """
    if n < 1 or high <= low:
        raise ValueError(f"{n} values between {low} and {high}; give one or more, and low below high")
    return (high - low) / (2 * math.sqrt(n))
