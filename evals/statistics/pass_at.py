"""Of k tries, at least one right (pass@k), or all right (pass^k), averaged over problems.

Chen et al. (arXiv 2107.03374): with c of n tries right, pass@k = 1 - C(n-c, k) / C(n, k), unbiased for every k <= n.
tau-bench (arXiv 2406.12045): pass^k = C(c, k) / C(n, k). With fewer scored tries than k a problem has no value: calling
it solved, as some tools do, turns failed calls into a better score.
"""

from collections.abc import Callable, Hashable, Sequence
from math import comb

from evals.statistics.estimate import CONFIDENCE, Estimate
from evals.statistics.means import estimate_mean

Tries = tuple[int, int]  # right, scored


def pass_at_k(
    tries: Sequence[Tries], k: int, *, clusters: Sequence[Hashable] | None = None, confidence: float = CONFIDENCE
) -> Estimate:
    """Mean over problems; `coverage` is the share of problems with k scored tries or more.

    Example: 3 of 10 right -> k=1 .3, k=2 .533333, k=5 .916667
    """
    return _over_problems(tries, k, lambda right, n: 1 - comb(n - right, k) / comb(n, k), clusters, confidence)


def pass_hat_k(
    tries: Sequence[Tries], k: int, *, clusters: Sequence[Hashable] | None = None, confidence: float = CONFIDENCE
) -> Estimate:
    """The reliability of k tries in a row. Example: 3 of 10 right -> k=1 .3, k=2 .066667, k=4 0."""
    return _over_problems(tries, k, lambda right, n: comb(right, k) / comb(n, k), clusters, confidence)


def _over_problems(
    tries: Sequence[Tries],
    k: int,
    value: Callable[[int, int], float],
    clusters: Sequence[Hashable] | None,
    confidence: float,
) -> Estimate:
    if k < 1:
        raise ValueError(f"k is {k}; it counts tries, so 1 or more")
    for place, (right, n) in enumerate(tries):
        if not 0 <= right <= n:
            raise ValueError(f"problem {place} has {right} right of {n} tries")
    values = [value(right, n) if n >= k else None for right, n in tries]
    return estimate_mean(values, clusters=clusters, confidence=confidence)
