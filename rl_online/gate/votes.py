"""The judge's word: weighed where the limits ask for it and the judge may vote, else only shown.

A win rate counts as shown above the limit when the lower end of its 95 % interval lies above it.
"""

from dataclasses import dataclass

from rl_online.gate.evidence import JudgedWins


@dataclass(frozen=True, kw_only=True, slots=True)
class Vote:
    """What became of the judge's word."""

    judge: str
    num_decided: int
    rate: float | None
    low: float | None
    high: float | None
    at_least: float  # the limit
    has_vote: bool
    passes: bool  # true without a vote: it decides nothing then
    sentence: str


def vote_of(wins: JudgedWins | None, at_least: float | None) -> Vote | None:
    """None where no vote is asked for, or nothing was judged."""
    if wins is None or at_least is None:
        return None
    is_above = wins.low is not None and wins.low > at_least
    return Vote(
        judge=wins.judge,
        num_decided=wins.num_decided,
        rate=wins.rate,
        low=wins.low,
        high=wins.high,
        at_least=at_least,
        has_vote=not wins.no_vote,
        passes=bool(wins.no_vote) or is_above,
        sentence=_in_words(wins, at_least, is_above=is_above),
    )


def _in_words(wins: JudgedWins, at_least: float, *, is_above: bool) -> str:
    asked = wins.num_decided + wins.num_undecided
    if wins.rate is None or wins.low is None or wins.high is None:
        measured = f"none of {asked} pairs is decided"
    else:
        measured = (
            f"win rate {_percent(wins.rate)} [{_percent(wins.low)}, {_percent(wins.high)}] "
            f"on {wins.num_decided} pairs in both orders"
        )
    if wins.no_vote:
        return f"judge {wins.judge} has no vote, {wins.no_vote}: {measured}"
    if wins.low is None:
        return f"judge {wins.judge}: {measured}, so nothing is shown"
    verdict = "above" if is_above else "not above"
    return f"judge {wins.judge}: {measured}, lower end {verdict} {_percent(at_least)}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
