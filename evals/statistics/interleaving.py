"""Two rankers, or two sources of suggestions, on one page: whose items do people take?

Team draft (Radlinski, Kurup, Joachims 2008): both sides pick in turns, a coin says who picks first in each round. A
query is won by the side whose items got more credit; queries with equal credit say nothing, are dropped and counted.
Every credited event must name the item it is for.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from evals.statistics.estimate import CONFIDENCE, Estimate
from evals.statistics.paired import mcnemar_exact
from evals.statistics.proportions import wilson


@dataclass(frozen=True, kw_only=True, slots=True)
class Interleaved:
    """Example: credits (2, 1), (0, 0), (1, 0), (0, 3) -> a 2, b 1, ties 1."""

    wins_a: int
    wins_b: int
    ties: int  # queries with equal credit, dropped from share and p-value
    share_a: Estimate  # of the queries with a winner; coverage says how many those are
    p_value: float | None  # two-sided exact sign test; None without a winner


def team_draft(
    first: Sequence[Hashable], second: Sequence[Hashable], *, length: int, toss: Callable[[], bool]
) -> list[tuple[Hashable, str]]:
    """(item, "a" or "b") as shown; `toss` says whether a picks first in a round. No item twice."""
    shown: list[tuple[Hashable, str]] = []
    taken: set[Hashable] = set()
    while len(shown) < length:
        round_of = [("a", first), ("b", second)] if toss() else [("b", second), ("a", first)]
        picked = False
        for side, ranked in round_of:
            item = next((item for item in ranked if item not in taken), None)
            if item is not None and len(shown) < length:
                shown.append((item, side))
                taken.add(item)
                picked = True
        if not picked:
            break
    return shown


def interleaved(credits: Sequence[tuple[float, float]], *, confidence: float = CONFIDENCE) -> Interleaved:
    """One pair (credit of a, credit of b) per query."""
    for place, pair in enumerate(credits):
        if not all(math.isfinite(credit) and credit >= 0 for credit in pair):
            raise ValueError(f"query {place} has credits {pair}; each is a number, 0 or more")
    wins_a, wins_b = sum(a > b for a, b in credits), sum(b > a for a, b in credits)
    decided = wins_a + wins_b
    return Interleaved(
        wins_a=wins_a,
        wins_b=wins_b,
        ties=len(credits) - decided,
        share_a=wilson(wins_a, decided, confidence=confidence).estimate(num_asked=len(credits)),
        p_value=mcnemar_exact(wins_a, wins_b) if decided else None,
    )
