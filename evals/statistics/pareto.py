"""Which points nothing beats: the frontier of cost against quality."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    name: str
    cost: float  # less is better
    quality: float  # more is better


def frontier(points: Sequence[Point]) -> list[Point]:
    """Cheapest first. A point falls out when another is at least as good and as cheap, and better in one of both.

    Two points with the same cost and quality stand or fall together.
    """
    return sorted(
        (point for point in points if not any(_beats(other, point) for other in points)),
        key=lambda point: (point.cost, point.quality, point.name),
    )


def _beats(one: Point, other: Point) -> bool:
    is_no_worse = one.cost <= other.cost and one.quality >= other.quality
    return is_no_worse and (one.cost < other.cost or one.quality > other.quality)
