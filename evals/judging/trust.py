"""Whether a judge has earned a vote: by agreeing with the tests more than chance would.

A vote is something to be earned with enough pairs; until then the judge's numbers are shown and weigh nothing. A judge
under which a canary wins can be gamed, and one that agrees no better than chance on enough pairs says nothing: both are
paused for rewards and gates. A policy that judges itself never has a vote.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from evals.judging.canaries import Standing
from evals.judging.pairwise import PairVerdict
from evals.statistics.agreement import Agreement, cohen_kappa

MIN_PAIRS = 20  # fewer make an interval for kappa that means nothing
PAUSED = "; paused for rewards and gates, because it failed its canaries"
DISAGREES = "; paused for rewards and gates, because it agrees no better than chance would"
UNSTABLE = "; paused for rewards and gates, because it no longer says the same about its anchors"
ITSELF = "; judges its own policy: no vote"


@dataclass(frozen=True, kw_only=True, slots=True)
class Trust:
    """A judge's verdicts beside those of the tests, on the pairs where both have one."""

    agreement: Agreement
    with_people: Agreement
    num_undecided: int  # invalid or failed judgements, and pairs the tests could not score
    has_vote: bool
    is_paused: bool  # failed its canaries, disagrees on enough pairs, or has drifted; has no vote then
    sentence: str


def verdict_of_tests(left: float | None, right: float | None) -> PairVerdict | None:
    """What the scores of two answers say about the pair; None when one is unscored."""
    if left is None or right is None:
        return None
    if left == right:
        return PairVerdict.TIE if left > 0 else PairVerdict.BOTH_BAD
    return PairVerdict.LEFT if left > right else PairVerdict.RIGHT


def trust_in(
    pairs: Sequence[tuple[PairVerdict, PairVerdict | None]],
    *,
    people: Sequence[tuple[PairVerdict, PairVerdict | None]] = (),
    canaries: Standing = Standing.NOT_RUN,
    is_unstable: bool = False,
) -> Trust:
    """Compare (judge, tests) per pair, and (judge, person). Ties and both_bad count as one: neither side is better.

    A vote is earned by agreeing with either and lost by disagreeing with either. Canaries that were not run, or could
    not be, leave it to the agreement.
    """
    agreement, with_people = _agreement(pairs), _agreement(people)
    reason = ""
    if canaries.is_paused:
        reason = PAUSED
    elif disagrees(agreement) or disagrees(with_people):
        reason = DISAGREES
    elif is_unstable:
        reason = UNSTABLE
    return Trust(
        agreement=agreement,
        with_people=with_people,
        num_undecided=len(pairs) - agreement.n,
        has_vote=(has_vote(agreement) or has_vote(with_people)) and not reason,
        is_paused=bool(reason),
        sentence=_said(agreement, with_people) + reason,
    )


def without_vote(trust: Trust) -> Trust:
    """The same judge where it judges its own policy."""
    return replace(trust, has_vote=False, sentence=trust.sentence + ITSELF)


def _agreement(pairs: Sequence[tuple[PairVerdict, PairVerdict | None]]) -> Agreement:
    rated = [(_side(judge), _side(other)) for judge, other in pairs if judge.is_decided and other is not None]
    return cohen_kappa([judge for judge, _ in rated], [other for _, other in rated])


def _said(agreement: Agreement, with_people: Agreement) -> str:
    if not with_people.n:
        return _sentence(agreement, "the tests")
    people = _sentence(with_people, "people")
    return f"{_sentence(agreement, 'the tests')}; {people}" if agreement.n else people


def disagrees(agreement: Agreement, *, min_pairs: int = MIN_PAIRS) -> bool:
    """Not above chance although there is enough to see it by; too few pairs, or no kappa, say nothing against it."""
    return agreement.n >= min_pairs and agreement.kappa_low is not None and agreement.kappa_low <= 0


def has_vote(agreement: Agreement, *, min_pairs: int = MIN_PAIRS) -> bool:
    """Above chance: the whole interval of kappa lies above 0, on enough pairs."""
    return agreement.n >= min_pairs and agreement.kappa_low is not None and agreement.kappa_low > 0


def _side(verdict: PairVerdict) -> str:
    return verdict.value if verdict in (PairVerdict.LEFT, PairVerdict.RIGHT) else "neither"


def _sentence(agreement: Agreement, other: str) -> str:
    if agreement.n == 0:
        return f"no pair yet on which both the judge and {other} have a verdict: no vote"
    agreed = f"agrees with {other} on {agreement.agreement.successes} of {agreement.n} pairs"
    if agreement.kappa is None:
        return f"{agreed}; kappa is undefined because neither ever varies: no vote"
    measured = f"{agreed}, kappa {agreement.kappa:.2f} [{agreement.kappa_low:.2f}, {agreement.kappa_high:.2f}]"
    if has_vote(agreement):
        return f"{measured}: above chance, has earned a vote"
    enough = agreement.n >= MIN_PAIRS
    return f"{measured}: {'not above chance' if enough else f'fewer than {MIN_PAIRS} pairs'}, no vote"
