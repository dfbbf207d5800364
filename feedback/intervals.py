"""95 % intervals of a share of turns: Wilson's, at a smaller n where users have several turns each. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Z = 1.959963984540054  # of a two-sided 95 %


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    low: float
    high: float
    interval: Literal["wilson", "wilson_clustered"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """The turns of one user, or those of nobody known, each of which stands for itself."""

    turns: int
    accepted: int
    is_one_user: bool = True


def share_bounds(clusters: Sequence[Cluster]) -> Bounds:
    """Bounds of accepted / turns over all clusters; without turns nothing is known: [0, 1].

    Clustered where some user has several turns: n is divided by the design effect, which is the clustered variance with
    factor G/(G-1) over p(1-p)/n, at least 1. Turns of a single user are one observation. Example: users with 2 of 2 and
    0 of 2 accepted: p = .5, variance 2/1 * (1 + 1) / 16 = .25 over .0625, so n is 4 / 4 = 1.
    """
    turns = sum(cluster.turns for cluster in clusters)
    if not any(cluster.is_one_user and cluster.turns > 1 for cluster in clusters):
        return _wilson(sum(cluster.accepted for cluster in clusters), turns, turns, "wilson")
    accepted = sum(cluster.accepted for cluster in clusters)
    return _wilson(accepted, turns, turns / _design_effect(clusters, accepted / turns, turns), "wilson_clustered")


def _design_effect(clusters: Sequence[Cluster], share: float, turns: int) -> float:
    num_clusters = sum(1 if cluster.is_one_user else cluster.turns for cluster in clusters)
    if num_clusters == 1:
        return float(turns)
    if share in (0, 1):
        return 1.0  # nothing varies, so nothing can be estimated
    squares = sum(
        (cluster.accepted - cluster.turns * share) ** 2
        if cluster.is_one_user
        else cluster.accepted * (1 - share) ** 2 + (cluster.turns - cluster.accepted) * share**2
        for cluster in clusters
    )
    clustered = num_clusters / (num_clusters - 1) * squares / turns**2
    return max(1.0, clustered / (share * (1 - share) / turns))


def _wilson(accepted: int, turns: int, n: float, interval: Literal["wilson", "wilson_clustered"]) -> Bounds:
    if turns == 0:
        return Bounds(low=0.0, high=1.0, interval=interval)
    share = accepted / turns
    centre = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    # At 0 and 1 the bound is exact; rounding would leave 1e-17 there.
    low = 0.0 if share == 0 else max(0.0, centre - half)
    return Bounds(low=low, high=1.0 if share == 1 else min(1.0, centre + half), interval=interval)
