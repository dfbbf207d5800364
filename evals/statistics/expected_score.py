"""A judge's score weighed by how sure it was, from the logprobs of the score's token.

G-Eval (Liu et al., arXiv 2303.16634), as DeepEval reads it: of the most likely tokens those that are a whole number and
have 1 % or more, renormalised. Example: p(4) .6, p(5) .3, p(3) .06, " four" .04 -> 4.25
"""

import math
from collections.abc import Iterable, Mapping

LEAST_PROBABILITY = 0.01


def expected_score(top_logprobs: Mapping[str, float], *, scores: Iterable[int] | None = None) -> float | None:
    """None when no token among the most likely ones is a score; `scores` are those that exist, None for any."""
    allowed = None if scores is None else set(scores)
    chances = [
        (int(token), math.exp(logprob))
        for token, logprob in top_logprobs.items()
        if token.isdecimal() and math.exp(logprob) >= LEAST_PROBABILITY and (allowed is None or int(token) in allowed)
    ]
    total = math.fsum(chance for _, chance in chances)
    return math.fsum(score * chance for score, chance in chances) / total if total else None
