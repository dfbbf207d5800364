"""How often a judge and people choose the same side, as MT-bench counts it: with ties, and among clear choices only.

FastChat `compute_agreement.py`: every pair of a judge's vote and a person's vote on one item counts, so an item with
three people counts three times. The interval is clustered by item for that reason. A judge that contradicts itself when
the answers swap places has voted for a tie.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from evals.statistics.estimate import CONFIDENCE, Estimate
from evals.statistics.proportions import wilson_clustered

TIE = "tie"


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemVotes:
    """Votes on one item ("A", "B", "tie"); a vote that is none (invalid, error) is not among them."""

    item: Hashable
    judges: Sequence[str]
    people: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class VoteAgreement:
    with_ties: Estimate  # n counts pairs of votes; a tie agrees with a tie only
    without_ties: Estimate  # pairs in which both chose a side


def settled(first: str, swapped: str) -> str:
    """A judge's vote from both orders, `swapped` being told in the names of the first: a tie unless both agree."""
    return first if first == swapped else TIE


def judges_with_people(items: Sequence[ItemVotes], *, confidence: float = CONFIDENCE) -> VoteAgreement:
    """Every judge's vote beside every person's, per item."""
    return _agreement([(one.item, *pair) for one in items for pair in product(one.judges, one.people)], confidence)


def people_with_people(items: Sequence[ItemVotes], *, confidence: float = CONFIDENCE) -> VoteAgreement:
    """Every two people of one item: the agreement that a judge can be expected to reach."""
    return _agreement([(one.item, *pair) for one in items for pair in combinations(one.people, 2)], confidence)


def _agreement(pairs: Sequence[tuple[Hashable, str, str]], confidence: float) -> VoteAgreement:
    clear = [pair for pair in pairs if TIE not in pair[1:]]
    return VoteAgreement(with_ties=_share(pairs, confidence), without_ties=_share(clear, confidence))


def _share(pairs: Sequence[tuple[Hashable, str, str]], confidence: float) -> Estimate:
    equal, items = [a == b for _, a, b in pairs], [item for item, _, _ in pairs]
    return wilson_clustered(equal, items, confidence=confidence).estimate()
