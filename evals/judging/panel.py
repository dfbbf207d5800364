"""Several judges as one: what their words come to, who abstained, and how far they are apart.

A judge whose reply is invalid, who could not be asked, or who is paused abstains. Fewer than the quorum decide nothing;
nor do marks that lie too far apart, since a mean of a quarrel is nobody's opinion.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from evals.judging.pairwise import PairVerdict

QUORUM = 2
MAX_SPREAD = 0.5  # of the scale from 0 to 1, between the highest and the lowest mark


@dataclass(frozen=True, kw_only=True, slots=True)
class PanelVerdict:
    """Example: left, left, tie, invalid -> left, 3 voted, 1 abstained, 2 of 3 agree with it"""

    verdict: PairVerdict  # of more than half of the votes; tie where nobody has that; invalid below the quorum
    num_votes: int
    num_abstained: int
    num_agreeing: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PanelMark:
    """Example: .8, .6, None -> value .7, spread .2, 2 voted, 1 abstained"""

    value: float | None  # the mean; None below the quorum, or where the marks lie too far apart
    spread: float | None
    num_votes: int
    num_abstained: int
    reason: str = ""  # why there is no value


def panel_verdict(verdicts: Sequence[PairVerdict | None], *, quorum: int = QUORUM) -> PanelVerdict:
    """Of one pair; None is a judge who was not asked."""
    votes = [verdict for verdict in verdicts if verdict is not None and verdict.is_decided]
    most, count = Counter(votes).most_common(1)[0] if votes else (PairVerdict.INVALID, 0)
    if len(votes) < quorum:
        most, count = PairVerdict.INVALID, 0
    elif 2 * count <= len(votes):
        most, count = PairVerdict.TIE, votes.count(PairVerdict.TIE)
    return PanelVerdict(
        verdict=most, num_votes=len(votes), num_abstained=len(verdicts) - len(votes), num_agreeing=count
    )


def panel_mark(values: Sequence[float | None], *, quorum: int = QUORUM, max_spread: float = MAX_SPREAD) -> PanelMark:
    """Of one answer; None is a judge without a mark."""
    votes = [value for value in values if value is not None]
    spread = max(votes) - min(votes) if votes else None
    if len(votes) < quorum:
        value, reason = None, f"{len(votes)} of {len(values)} judges gave a mark, {quorum} are needed"
    elif spread is not None and spread > max_spread:
        value, reason = None, f"the marks lie {spread:.2f} apart, more than {max_spread:g}"
    else:
        value, reason = fmean(votes), ""
    return PanelMark(
        value=value, spread=spread, num_votes=len(votes), num_abstained=len(values) - len(votes), reason=reason
    )
