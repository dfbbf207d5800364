"""Intervals from resampling: percentile and BCa, over independent values or over whole clusters.

A cluster (a user, a problem with its tries) is drawn as a whole, because its values are not independent facts. A mean
needs only each cluster's sum and size, so resamples are drawn over those: as many times faster than over values as
clusters are large, and with the same distribution. Efron and Tibshirani (1993), chapters 13 and 14. Seed and number of
resamples belong to the record: another seed is another interval.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from evals.statistics.distributions import ndtr, ndtri
from evals.statistics.estimate import CONFIDENCE, Estimate, Kind, finite, scored, unknown

RESAMPLES = 10_000
DRAWS_AT_ONCE = 400_000  # what is drawn and added up at once stays in the processor's cache
CLUSTERS_A_TYPE = 32  # from here on counting how often each type was drawn is faster than drawing clusters

Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bootstrap:
    """An estimate and how to make it again. Its se is the standard deviation over resamples."""

    estimate: Estimate
    resamples: int
    seed: int


def bootstrap_mean(
    values: Sequence[float | None] | Numbers,
    *,
    clusters: Sequence[Hashable] | NDArray[np.int64] | None = None,
    kind: Kind = Kind.PERCENTILE,
    resamples: int = RESAMPLES,
    seed: int = 0,
    confidence: float = CONFIDENCE,
) -> Bootstrap:
    """The mean of what is scored; `kind` is PERCENTILE or BCA, and comes back as clustered where clusters are given."""
    if kind not in (Kind.PERCENTILE, Kind.BCA):
        raise ValueError(f"a bootstrap is {Kind.PERCENTILE} or {Kind.BCA}, not {kind}")
    if clusters is not None and len(clusters) != len(values):
        raise ValueError(f"{len(values)} values came with {len(clusters)} clusters; send one cluster per value")
    numbers, labels = _known(values, clusters)
    sums, sizes = (numbers, np.ones(len(numbers))) if labels is None else _by_cluster(numbers, labels)
    num_clusters = None if labels is None else len(sums)
    nothing = partial(unknown, n=len(numbers), num_asked=len(values), num_clusters=num_clusters, confidence=confidence)
    if len(sums) < 2:
        value = float(numbers.mean()) if len(numbers) else None
        why = ("one cluster" if labels is not None else "one observation") + " says nothing about the error"
        one = nothing(why if len(numbers) else "no data", value=value)
        return Bootstrap(estimate=one, resamples=resamples, seed=seed)
    means = resampled_means(sums, sizes, resamples=resamples, seed=seed)
    mean = float(sums.sum() / sizes.sum())
    tail = (1 - confidence) / 2
    if kind == Kind.BCA:
        jackknife = (sums.sum() - sums) / (sizes.sum() - sizes)
        low, high = bca_bounds(means, mean, jackknife, tail=tail)
    else:
        low, high = np.quantile(means, [tail, 1 - tail]).tolist()
    if low == high:
        flat = nothing("what never varied says nothing about the error", value=mean, se=0.0)
        return Bootstrap(estimate=flat, resamples=resamples, seed=seed)
    clustered = {Kind.PERCENTILE: Kind.CLUSTERED_PERCENTILE, Kind.BCA: Kind.CLUSTERED_BCA}
    estimate = Estimate(
        value=mean, se=float(means.std(ddof=1)), low=low, high=high,
        interval=kind if labels is None else clustered[kind], confidence=confidence, n=len(numbers),
        num_asked=len(values), num_clusters=num_clusters,
    )  # fmt: skip
    return Bootstrap(estimate=estimate, resamples=resamples, seed=seed)


def resampled_means(sums: Numbers, sizes: Numbers, *, resamples: int, seed: int) -> Numbers:
    """sum of sums / sum of sizes over as many clusters as there are, drawn with replacement, `resamples` times."""
    rng, count = np.random.default_rng(seed), len(sums)
    types, times = np.unique(np.column_stack([sums, sizes]), axis=0, return_counts=True)
    if len(types) * CLUSTERS_A_TYPE <= count:
        drawn = rng.multinomial(count, times / count, size=resamples) @ types
        means: Numbers = drawn[:, 0] / drawn[:, 1]
        return means
    means, both = np.empty(resamples), sums + 1j * sizes  # one look-up for two numbers
    at_once = max(1, DRAWS_AT_ONCE // count)
    for start in range(0, resamples, at_once):
        stop = min(start + at_once, resamples)
        total = both.take(rng.integers(count, size=(stop - start, count), dtype=np.uint32)).sum(axis=1)
        means[start:stop] = total.real / total.imag
    return means


def bca_bounds(resampled: Numbers, observed: float, jackknife: Numbers, *, tail: float) -> tuple[float, float]:
    """Percentiles moved by bias z0 and acceleration sum d^3 / (6 (sum d^2)^1.5), with d from the jackknife."""
    below = float((resampled < observed).mean() + (resampled <= observed).mean()) / 2
    deviation = jackknife.mean() - jackknife
    squares = float((deviation**2).sum())
    acceleration = float((deviation**3).sum()) / (6 * squares**1.5) if squares else 0.0
    bias = float(ndtri(min(max(below, 0.5 / len(resampled)), 1 - 0.5 / len(resampled))))

    def moved(quantile: float) -> float:
        shifted = bias + float(ndtri(quantile))
        return float(ndtr(bias + shifted / (1 - acceleration * shifted)))

    low, high = np.quantile(resampled, [moved(tail), moved(1 - tail)]).tolist()
    return low, high


def bootstrap_statistic(
    statistic: Callable[[NDArray[np.int64]], float | None],
    *,
    clusters: Sequence[Hashable],
    resamples: int = 1_000,
    seed: int = 0,
    confidence: float = CONFIDENCE,
) -> Bootstrap:
    """Any number of the chosen places (one cluster each, repeated as drawn); clustered percentile interval.

    Undefined as soon as one resample is: the interval of those that are left would be that of the lucky ones.
    """
    places = _places(clusters)
    nothing = partial(unknown, n=len(clusters), num_clusters=len(places), confidence=confidence)
    observed = statistic(np.arange(len(clusters))) if places else None
    if observed is None or len(places) < 2:
        why = "one cluster says nothing about the error" if observed is not None else "undefined on the data itself"
        return Bootstrap(estimate=nothing(why, value=observed), resamples=resamples, seed=seed)
    rng, found = np.random.default_rng(seed), []
    for _ in range(resamples):
        one = statistic(np.concatenate([places[place] for place in rng.integers(len(places), size=len(places))]))
        if one is None:
            why = "undefined on a resample, so its spread is not known"
            return Bootstrap(estimate=nothing(why, value=observed), resamples=resamples, seed=seed)
        found.append(one)
    tail = (1 - confidence) / 2
    low, high = np.quantile(found, [tail, 1 - tail]).tolist()
    if low == high:
        flat = nothing("what never varied says nothing about the error", value=observed, se=0.0)
        return Bootstrap(estimate=flat, resamples=resamples, seed=seed)
    estimate = Estimate(
        value=observed, se=float(np.std(found, ddof=1)), low=low, high=high, interval=Kind.CLUSTERED_PERCENTILE,
        confidence=confidence, n=len(clusters), num_asked=len(clusters), num_clusters=len(places),
    )  # fmt: skip
    return Bootstrap(estimate=estimate, resamples=resamples, seed=seed)


def _known(
    values: Sequence[float | None] | Numbers, clusters: Sequence[Hashable] | NDArray[np.int64] | None
) -> tuple[Numbers, Sequence[Hashable] | NDArray[np.int64] | None]:
    if isinstance(values, np.ndarray):
        return finite(values, what="value"), clusters
    known = scored(values)
    labels = None if clusters is None else [clusters[place] for place, _ in known]
    return np.array([value for _, value in known], dtype=float), labels


def _by_cluster(numbers: Numbers, labels: Sequence[Hashable] | NDArray[np.int64]) -> tuple[Numbers, Numbers]:
    """Sum and size of each cluster."""
    if isinstance(labels, np.ndarray):
        _, which = np.unique(labels, return_inverse=True)
    else:
        numbered: dict[Hashable, int] = {}
        which = np.array([numbered.setdefault(label, len(numbered)) for label in labels], dtype=np.int64)
    return np.bincount(which, weights=numbers).astype(float), np.bincount(which).astype(float)


def _places(clusters: Sequence[Hashable]) -> list[NDArray[np.int64]]:
    found: dict[Hashable, list[int]] = {}
    for place, label in enumerate(clusters):
        found.setdefault(label, []).append(place)
    return [np.array(places) for places in found.values()]
