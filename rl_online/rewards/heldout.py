"""Which samples of a batch are only measured. Decided when the batch is sealed, so that rows and trainer agree."""

import hashlib
from collections.abc import Sequence

AT_MOST = 1 / 20  # of the turns that may be chosen: a small batch is learnt from whole


def choose_heldout(turns: Sequence[str], *, at_most: int) -> set[str]:
    """The turns set aside, the same for the same turns in any order; none of fewer than twenty."""
    num = min(at_most, int(len(turns) * AT_MOST))
    return set(sorted(turns, key=lambda turn: hashlib.sha256(turn.encode()).digest())[:num])
