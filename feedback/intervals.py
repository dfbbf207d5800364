"""95 % intervals of a share of turns: Wilson's, at a smaller n where users have several turns each. Pure."""

import math
from collections.abc import Iterable
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Moments:
    """All that an interval needs to know of its clusters: whole numbers that add up over disjoint sets of users.

    Example: users with 2 of 2 and 0 of 2 accepted, and one turn of nobody known, rejected:
        turns = 5   accepted = 2   num_clusters = 3   accepted_squared = 4   product = 4   turns_squared = 4 + 4 + 1
    """

    turns: int = 0
    accepted: int = 0
    num_clusters: int = 0  # users, and turns of nobody known
    accepted_squared: int = 0  # sum over clusters of accepted ** 2
    product: int = 0  # ... of accepted * turns
    turns_squared: int = 0  # ... of turns ** 2

    @property
    def is_clustered(self) -> bool:
        """Whether some user has several turns."""
        return self.turns_squared > self.turns

    def __add__(self, other: "Moments") -> "Moments":
        """Of both sets, which must have no user in common."""
        return Moments(
            turns=self.turns + other.turns,
            accepted=self.accepted + other.accepted,
            num_clusters=self.num_clusters + other.num_clusters,
            accepted_squared=self.accepted_squared + other.accepted_squared,
            product=self.product + other.product,
            turns_squared=self.turns_squared + other.turns_squared,
        )


def moments_of(clusters: Iterable[Cluster]) -> Moments:
    total = Moments()
    for cluster in clusters:
        total += _of_user(cluster) if cluster.is_one_user else _of_nobody(cluster)
    return total


def share_bounds(clusters: Iterable[Cluster]) -> Bounds:
    """Bounds of accepted / turns over all clusters; without turns nothing is known: [0, 1].

    Clustered where some user has several turns: n is divided by the design effect, which is the clustered variance with
    factor G/(G-1) over p(1-p)/n, at least 1. Turns of a single user are one observation. Example: users with 2 of 2 and
    0 of 2 accepted: p = .5, variance 2/1 * (1 + 1) / 16 = .25 over .0625, so n is 4 / 4 = 1.
    """
    return bounds_of(moments_of(clusters))


def bounds_of(moments: Moments) -> Bounds:
    """As `share_bounds`."""
    if not moments.is_clustered:
        return _wilson(moments.accepted, moments.turns, moments.turns, "wilson")
    return _wilson(moments.accepted, moments.turns, moments.turns / _design_effect(moments), "wilson_clustered")


def _of_user(cluster: Cluster) -> Moments:
    return Moments(
        turns=cluster.turns,
        accepted=cluster.accepted,
        num_clusters=1,
        accepted_squared=cluster.accepted**2,
        product=cluster.accepted * cluster.turns,
        turns_squared=cluster.turns**2,
    )


def _of_nobody(cluster: Cluster) -> Moments:
    return Moments(
        turns=cluster.turns,
        accepted=cluster.accepted,
        num_clusters=cluster.turns,
        accepted_squared=cluster.accepted,
        product=cluster.accepted,
        turns_squared=cluster.turns,
    )


def _design_effect(moments: Moments) -> float:
    turns, accepted = moments.turns, moments.accepted
    if moments.num_clusters == 1:
        return float(turns)
    if accepted in (0, turns):
        return 1.0  # nothing varies, so nothing can be estimated
    # n^2 times the sum over clusters of (accepted - turns * share)^2: in whole numbers nothing cancels away.
    squares = (
        turns**2 * moments.accepted_squared
        - 2 * accepted * turns * moments.product
        + accepted**2 * moments.turns_squared
    )
    factor = moments.num_clusters / (moments.num_clusters - 1)
    return max(1.0, factor * squares / (turns * accepted * (turns - accepted)))


def _wilson(accepted: int, turns: int, n: float, interval: Literal["wilson", "wilson_clustered"]) -> Bounds:
    if turns == 0:
        return Bounds(low=0.0, high=1.0, interval=interval)
    share = accepted / turns
    centre = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    # At 0 and 1 the bound is exact; rounding would leave 1e-17 there.
    low = 0.0 if share == 0 else max(0.0, centre - half)
    return Bounds(low=low, high=1.0 if share == 1 else min(1.0, centre + half), interval=interval)
