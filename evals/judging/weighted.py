"""A mark as an expectation over the marks the model thought of (G-Eval, arXiv 2303.16634).

The token to weigh is the last one that spells the mark that was given; whole marks on the scale with a probability of
1 % or more count, renormalised. Example: p(4) = .6, p(5) = .3, p(3) = .06 -> 4.25.
"""

import math
from collections.abc import Sequence

from evals.judging.completer import TokenChoices
from evals.judging.marks import Scale

LEAST = 0.01
SLACK = 1e-9  # exp(log(.01)) may fall a hair short of .01


def weighted_mark(given: float, tokens: Sequence[TokenChoices], scale: Scale) -> float | None:
    """None where no token spells the mark by itself, or nothing on the scale is likely: the plain mark stands then."""
    spelled = [one for one in tokens if _whole(one.token) == given]
    if not spelled:
        return None
    likely: dict[int, float] = {}
    for text, logprob in spelled[-1].top.items():
        mark, probability = _whole(text), math.exp(min(logprob, 0.0))
        if mark is not None and scale.holds(mark) and probability >= LEAST - SLACK:
            likely[mark] = likely.get(mark, 0.0) + probability
    total = math.fsum(likely.values())
    return math.fsum(mark * probability for mark, probability in likely.items()) / total if total else None


def _whole(token: str) -> int | None:
    plain = token.strip()
    return int(plain) if plain.isascii() and plain.isdigit() and len(plain) <= 3 else None
