"""Which pieces share a row: best fit, the longest first, so that rows are full and no piece is cut for it.

Ding et al., arXiv 2404.10830: the room left over is under a percent of a corpus, and no document is truncated.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence


def pack(lengths: Sequence[int], row_tokens: int) -> list[list[int]]:
    """Rows of indices into `lengths`, each of at most `row_tokens`; a row's pieces and the rows in the order given.

    Example: lengths 5, 4, 3, 2, 1 in rows of 8 -> [[0, 2], [1, 3, 4]]
    """
    rows: list[list[int]] = []
    free: list[tuple[int, int]] = []  # (places left, row) of rows that are not full, ascending
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        length = lengths[index]
        place = bisect_left(free, (length, -1))
        if place < len(free):
            left, row = free.pop(place)
            rows[row].append(index)
        else:
            left, row = row_tokens, len(rows)
            rows.append([index])
        if left > length:
            insort(free, (left - length, row))
    return sorted(map(sorted, rows))
