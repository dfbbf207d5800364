"""Whether a judge has earned a vote: by agreeing with the tests more than chance would.

A vote is something to be earned with enough pairs; until then the judge's numbers are shown and weigh nothing. A judge
under which a canary wins can be gamed: it is paused for rewards and gates, however well it agrees.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from evals.judging.canaries import Standing
from evals.judging.pairwise import PairVerdict
from evals.statistics.agreement import Agreement, cohen_kappa

MIN_PAIRS = 20  # fewer make an interval for kappa that means nothing
PAUSED = "; paused for rewards and gates, because it failed its canaries"


@dataclass(frozen=True, kw_only=True, slots=True)
class Trust:
    """A judge's verdicts beside those of the tests, on the pairs where both have one."""

    agreement: Agreement
    num_undecided: int  # invalid or failed judgements, and pairs the tests could not score
    has_vote: bool
    is_paused: bool  # failed its canaries; has no vote then
    sentence: str


def verdict_of_tests(left: float | None, right: float | None) -> PairVerdict | None:
    """What the scores of two answers say about the pair; None when one is unscored."""
    if left is None or right is None:
        return None
    if left == right:
        return PairVerdict.TIE if left > 0 else PairVerdict.BOTH_BAD
    return PairVerdict.LEFT if left > right else PairVerdict.RIGHT


def trust_in(
    pairs: Sequence[tuple[PairVerdict, PairVerdict | None]], *, canaries: Standing = Standing.NOT_RUN
) -> Trust:
    """Compare (judge, tests) per pair. Ties and both_bad count as one category: neither side is better.

    Canaries that were not run, or could not be, leave the vote to the agreement.
    """
    rated = [(_side(judge), _side(tests)) for judge, tests in pairs if judge.is_decided and tests is not None]
    agreement = cohen_kappa([judge for judge, _ in rated], [tests for _, tests in rated])
    return Trust(
        agreement=agreement,
        num_undecided=len(pairs) - len(rated),
        has_vote=has_vote(agreement) and not canaries.is_paused,
        is_paused=canaries.is_paused,
        sentence=_sentence(agreement) + (PAUSED if canaries.is_paused else ""),
    )


def has_vote(agreement: Agreement, *, min_pairs: int = MIN_PAIRS) -> bool:
    """Above chance: the whole interval of kappa lies above 0, on enough pairs."""
    return agreement.n >= min_pairs and agreement.kappa_low is not None and agreement.kappa_low > 0


def _side(verdict: PairVerdict) -> str:
    return verdict.value if verdict in (PairVerdict.LEFT, PairVerdict.RIGHT) else "neither"


def _sentence(agreement: Agreement) -> str:
    if agreement.n == 0:
        return "no pair yet on which both the judge and the tests have a verdict: no vote"
    agreed = f"agrees with the tests on {agreement.agreement.successes} of {agreement.n} pairs"
    if agreement.kappa is None:
        return f"{agreed}; kappa is undefined because neither ever varies: no vote"
    measured = f"{agreed}, kappa {agreement.kappa:.2f} [{agreement.kappa_low:.2f}, {agreement.kappa_high:.2f}]"
    if has_vote(agreement):
        return f"{measured}: above chance, has earned a vote"
    enough = agreement.n >= MIN_PAIRS
    return f"{measured}: {'not above chance' if enough else f'fewer than {MIN_PAIRS} pairs'}, no vote"
