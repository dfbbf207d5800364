"""What judges have said before, found by content: the same judge, prompt, parameters, task and answers.

A reply that had no verdict and a request without a reply are never found again. Inside a tenant.
"""

from collections.abc import Iterable
from decimal import Decimal

from evals.judging.judge import Judge
from evals.judging.pairwise import ORDERS, Call, Pair, PairVerdict, cache_key
from evals.judging.pointwise import Item, RatingCall, RatingState, rating_key
from evals.judging.verdict import Verdict
from evals.models import JudgeCall, VerdictKind

UNDECIDED = (VerdictKind.INVALID, VerdictKind.ERROR)
LETTERS = {
    ("lr", PairVerdict.LEFT): Verdict.A, ("lr", PairVerdict.RIGHT): Verdict.B,
    ("rl", PairVerdict.LEFT): Verdict.B, ("rl", PairVerdict.RIGHT): Verdict.A,
}  # fmt: skip


def known_calls(judge: Judge, pairs: Iterable[Pair]) -> dict[str, Call]:
    """By cache key, to be given to `judge_pair` as its cache. One query."""
    return {
        row.cache_key: _call(row) for row in _known(cache_key(judge, pair, order=o) for pair in pairs for o in ORDERS)
    }


def known_ratings(judge: Judge, items: Iterable[Item]) -> dict[str, RatingCall]:
    """By cache key, to be given to `rate` as its cache. One query."""
    return {row.cache_key: _rating(row) for row in _known(rating_key(judge, item) for item in items)}


def _known(keys: Iterable[str]) -> Iterable[JudgeCall]:
    said = JudgeCall.objects.filter(cache_key__in=[key for key in keys if key], is_cached=False).exclude(
        verdict__in=UNDECIDED
    )
    return said.order_by("cache_key", "-id").distinct("cache_key")


def _call(row: JudgeCall) -> Call:
    side = PairVerdict(row.verdict)
    return Call(
        order=row.order,
        cache_key=row.cache_key,
        verdict=LETTERS.get((row.order, side)) or Verdict(side.value),
        raw=row.raw,
        cost_usd=Decimal(0),
        is_cached=True,
    )


def _rating(row: JudgeCall) -> RatingCall:
    return RatingCall(
        cache_key=row.cache_key,
        state=RatingState.SCORED,
        value=row.value,
        mark=row.mark,
        raw=row.raw,
        cost_usd=Decimal(0),
        is_cached=True,
    )
