"""How large a difference a comparison can see, and how many items it takes.

Two-sided at `alpha`, normal approximation: MDE = (z_alpha/2 + z_power) * se. A comparison that cannot see the
difference it was made for ends "not shown", which is not "none".
"""

import math

from evals.statistics.distributions import ndtr, ndtri

ALPHA = 0.05
POWER = 0.8


def minimal_detectable_effect(*, sd: float, n: int, alpha: float = ALPHA, power: float = POWER) -> float | None:
    """Of the mean of n (paired) differences with standard deviation `sd`; None where nothing could vary or n is 0.

    With clusters give n over the design effect. Example: 80 problems, sd .2927 -> .0917
    """
    if n < 1 or sd <= 0:
        return None
    return _quantiles(alpha, power) * sd / math.sqrt(n)


def items_needed(effect: float, *, sd: float, alpha: float = ALPHA, power: float = POWER) -> int:
    """The smallest n whose minimal detectable effect is at most `effect`."""
    _check(effect)
    return math.ceil(_whole((_quantiles(alpha, power) * sd / effect) ** 2))


def items_needed_with_tries(
    effect: float,
    *,
    between: float,
    within_new: float,
    within_old: float,
    tries_new: int = 1,
    tries_old: int = 1,
    alpha: float = ALPHA,
    power: float = POWER,
) -> int:
    """Miller (arXiv 2411.00640, section 5): z^2 (w^2 + s_A^2 / K_A + s_B^2 / K_B) / effect^2, variances given.

    `between` is the variance over problems of the difference of their true scores; `within_*` the mean variance of one
    try at a problem. Example: effect .03, 1/9, 1/6, 1/6 -> 3876
    """
    _check(effect)
    variance = between + within_new / tries_new + within_old / tries_old
    return math.ceil(_whole(_quantiles(alpha, power) ** 2 * variance / effect**2))


def power_of(effect: float, *, sd: float, n: int, alpha: float = ALPHA) -> float | None:
    """Chance that a true difference of `effect` is found with n items, either way; alpha itself at effect 0."""
    if n < 1 or sd <= 0:
        return None
    shift, critical = effect * math.sqrt(n) / sd, float(ndtri(1 - alpha / 2))
    return float(ndtr(shift - critical) + ndtr(-shift - critical))


def _quantiles(alpha: float, power: float) -> float:
    return float(ndtri(1 - alpha / 2) + ndtri(power))


def _whole(items: float) -> float:
    return round(items, 9)  # 100.00000000000001 items are 100


def _check(effect: float) -> None:
    if effect <= 0:
        raise ValueError(f"an effect of {effect} cannot be looked for; give its size, above 0")
