"""How far two raters of the same pairs of answers agree: judges with people, two judges, or people among themselves.

A verdict of either counts once for each verdict of the other on the same pair of answers, as MT-bench counts it, so
intervals are clustered by pair. That neither is better and that both are bad are one verdict here: not every rater
could say the second. Pure.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np

from evals.statistics.bootstrap import bootstrap_statistic
from evals.statistics.estimate import Estimate, unknown
from evals.statistics.vote_agreement import TIE, ItemVotes, judges_with_people, people_with_people

FIRST, SECOND = "first", "second"
LABELS = {FIRST: 0, SECOND: 1, TIE: 2}

Said = Mapping[Hashable, list[str]]  # pair of answers to one problem -> what was said about it


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreed:
    """n counts pairs of verdicts, clusters are pairs of answers that both raters judged."""

    with_ties: Estimate  # share of equal verdicts
    without_ties: Estimate  # among those in which both chose a side
    kappa: Estimate  # Cohen's


def said_by(verdicts: Iterable[tuple[Hashable, str, str, float | None]]) -> Said:
    """From (problem, left, right, result); undecided ones are left out, and sides are told apart by name, not place."""
    found: dict[Hashable, list[str]] = {}
    for problem, left, right, result in verdicts:
        if result is None:
            continue
        one, other = sorted((left, right))
        is_turned = left != one
        word = TIE if result == 0.5 else FIRST if (result == 1) != is_turned else SECOND
        found.setdefault((problem, one, other), []).append(word)
    return found


def agreed(mine: Said, others: Said) -> Agreed:
    """Of two raters."""
    both = [ItemVotes(item=item, judges=mine[item], people=others[item]) for item in mine if item in others]
    pairs = [(one.item, a, b) for one in both for a, b in product(one.judges, one.people)]
    share = judges_with_people(both)
    return Agreed(with_ties=share.with_ties, without_ties=share.without_ties, kappa=_kappa(pairs))


def agreed_among(said: Said) -> Agreed:
    """Of any two verdicts of one group of raters, people for instance: what a judge can be expected to reach."""
    items = [ItemVotes(item=item, judges=(), people=words) for item, words in said.items() if len(words) > 1]
    pairs = [(one.item, a, b) for one in items for a, b in combinations(one.people, 2)]
    both_ways = [*pairs, *((item, b, a) for item, a, b in pairs)]  # nobody of the group comes first
    share, kappa = people_with_people(items), replace(_kappa(both_ways), n=len(pairs), num_asked=len(pairs))
    return Agreed(with_ties=share.with_ties, without_ties=share.without_ties, kappa=kappa)


def _kappa(pairs: list[tuple[Hashable, str, str]]) -> Estimate:
    if not pairs:
        return unknown("no pair of answers was judged by both")
    first, second = np.array([LABELS[a] for _, a, _ in pairs]), np.array([LABELS[b] for _, _, b in pairs])
    return bootstrap_statistic(
        lambda places: _cohen(first[places], second[places]), clusters=[item for item, _, _ in pairs]
    ).estimate


def _cohen(first: np.ndarray, second: np.ndarray) -> float | None:
    """None where chance alone explains all agreement: both always say the same."""
    size = len(LABELS)
    table = np.bincount(first * size + second, minlength=size * size).reshape(size, size) / len(first)
    by_chance = float(table.sum(axis=1) @ table.sum(axis=0))
    return None if by_chance == 1 else (float(np.trace(table)) - by_chance) / (1 - by_chance)
