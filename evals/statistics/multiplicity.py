"""p-values of many tests at once, adjusted so that each can be held against the usual level.

Holm bounds the chance of any false alarm: for gates. Benjamini and Hochberg bound the share of false alarms among
alarms: for looking around. A p-value of None (a test that could not be made) stays None and is not counted as a test.
"""

from collections.abc import Sequence

from evals.statistics.estimate import scored


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm (1979): the i-th smallest of m times m - i + 1, never falling, at most 1."""
    order, found = _sorted(p_values), list[float | None]([None] * len(p_values))
    largest = 0.0
    for rank, (place, p_value) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_value))
        found[place] = largest
    return found


def benjamini_hochberg(p_values: Sequence[float | None]) -> list[float | None]:
    """Benjamini and Hochberg (1995): the i-th smallest of m times m / i, never rising towards smaller ones."""
    order, found = _sorted(p_values), list[float | None]([None] * len(p_values))
    smallest = 1.0
    for rank in range(len(order), 0, -1):
        place, p_value = order[rank - 1]
        smallest = min(smallest, p_value * len(order) / rank)
        found[place] = smallest
    return found


def _sorted(p_values: Sequence[float | None]) -> list[tuple[int, float]]:
    known = scored(p_values)
    for place, p_value in known:
        if not 0 <= p_value <= 1:
            raise ValueError(f"p-value {place} is {p_value}; it lies in [0, 1]")
    return sorted(known, key=lambda one: one[1])
