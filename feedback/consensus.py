"""What several reviewers' answers about one turn come to. Pure."""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

FINE, EXCLUDED, OVERRIDDEN = "fine", "excluded", "overridden"
CAREFUL_FIRST = (EXCLUDED, OVERRIDDEN, FINE)  # a tie goes to the answer that teaches least


@dataclass(frozen=True, kw_only=True, slots=True)
class Vote:
    """One answer: a resolution, and a reward in [-1, 1] exactly with `overridden`."""

    resolution: str
    reward: float | None = None


def settle(votes: Sequence[Vote]) -> Vote:
    """The most frequent resolution; an override takes the median of the rewards given. Raises ValueError on none.

    Example: overridden -1, overridden 0, fine -> overridden -.5
    """
    if not votes:
        raise ValueError("no answer settles nothing")
    counts = Counter(vote.resolution for vote in votes)
    winner = max(CAREFUL_FIRST, key=lambda resolution: counts[resolution])  # max keeps the first of equals
    rewards = [vote.reward for vote in votes if vote.resolution == OVERRIDDEN and vote.reward is not None]
    return Vote(resolution=winner, reward=statistics.median(rewards) if winner == OVERRIDDEN else None)
