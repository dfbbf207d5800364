"""One number for several benchmarks, and the error that belongs to its weights.

The error must follow the weights that made the mean: an unweighted mean with the error of a pooled sample belongs to no
estimate at all. Parts are independent of each other.
"""

import math
from collections.abc import Sequence

from evals.statistics.estimate import CONFIDENCE, Estimate, around, unknown


def mean_of_benchmarks(parts: Sequence[Estimate], *, confidence: float = CONFIDENCE) -> Estimate:
    """Every benchmark counts the same: SE = sqrt(sum of SE^2) / number of benchmarks.

    Example: SEs .02 and .03 -> .018028
    """
    return _weighted(parts, [1.0] * len(parts), confidence)


def mean_of_items(parts: Sequence[Estimate], *, confidence: float = CONFIDENCE) -> Estimate:
    """Every item counts the same: weights n / N, SE = sqrt(sum of (n/N)^2 SE^2).

    Example: 1 of 6 and 1 of 1 -> 2/7; its error is unknown, because that of a single item is.
    """
    return _weighted(parts, [float(part.n) for part in parts], confidence)


def _weighted(parts: Sequence[Estimate], weights: Sequence[float], confidence: float) -> Estimate:
    n, num_asked = sum(part.n for part in parts), sum(part.num_asked for part in parts)
    values = [part.value for part in parts if part.value is not None]
    if len(values) < len(parts) or not parts:
        without = len(parts) - len(values)
        why = f"{without} of {len(parts)} benchmarks without a score" if parts else "no data"
        return unknown(why, n=n, num_asked=num_asked, confidence=confidence)
    total = math.fsum(weights)
    value = math.fsum(weight * one for weight, one in zip(weights, values, strict=True)) / total
    errors = [part.se for part in parts if part.se is not None]
    if len(errors) < len(parts):
        why = f"{len(parts) - len(errors)} of {len(parts)} benchmarks without an error"
        return unknown(why, value=value, n=n, num_asked=num_asked, confidence=confidence)
    se = math.sqrt(math.fsum((weight * one) ** 2 for weight, one in zip(weights, errors, strict=True))) / total
    return around(value, se, n=n, num_asked=num_asked, confidence=confidence)


def pooled_standard_error(errors: Sequence[float], sizes: Sequence[int]) -> float:
    """What lm-evaluation-harness prints beside a group: sqrt(sum of (n-1) n SE^2 / (N - k)) / sqrt(N).

    To compare with imported files only: it takes all parts for samples of one population with one mean.
    """
    if len(errors) != len(sizes) or not sizes:
        raise ValueError(f"{len(errors)} errors came with {len(sizes)} sizes; send one of each per benchmark")
    squares = math.fsum((n - 1) * n * se**2 for se, n in zip(errors, sizes, strict=True))
    return math.sqrt(squares / (sum(sizes) - len(sizes)) / sum(sizes))
