"""Whether a judge may vote in a gate, and if not, why: the one rule beside `trust`, which says how far to believe it.

A vote is for a judge whose canaries were run and stayed at the floor, that agrees with the tests or with people above
chance, is not paused, and does not judge its own policy. What it says is shown without a vote too, and decides nothing.
"""

from evals.judging.canaries import Standing
from evals.judging.trust import Trust

CANARIES = {
    Standing.NOT_RUN: "its canaries were not run",
    Standing.INCONCLUSIVE: "its canaries could not all be judged",
    Standing.FAILED: "it failed its canaries",
}


def why_no_vote(trust: Trust, *, canaries: Standing, judges_itself: bool) -> str:
    """The first reason there is, in plain words; empty when it may vote."""
    if judges_itself:
        return "a policy may not judge itself"
    if canaries in CANARIES:
        return CANARIES[canaries]
    if trust.is_paused or not trust.has_vote:
        return trust.sentence
    return ""
