"""One pair of answers before a judge, in both orders.

A side wins only when both orders say so; two orders that differ are a tie, because the judge went by position. An
invalid reply or a failed request makes the pair invalid or error: counted, never a tie.
"""

import hashlib
import json
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any

from evals.judging.completer import Completer, Completion, CompletionFailed, Messages
from evals.judging.judge import Judge
from evals.judging.prompt import judge_messages
from evals.judging.rubrics import repair_messages
from evals.judging.verdict import Verdict, parse_verdict

ORDERS = ("lr", "rl")  # left shown as A, right shown as A


class PairVerdict(StrEnum):
    LEFT = "left"
    RIGHT = "right"
    TIE = "tie"
    BOTH_BAD = "both_bad"
    INVALID = "invalid"
    ERROR = "error"

    @property
    def is_decided(self) -> bool:
        return self not in (PairVerdict.INVALID, PairVerdict.ERROR)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two answers to one task."""

    key: str
    task: Any  # the prompt's text or its messages
    left: str
    right: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One request to the judge, or its repair, in one order."""

    order: str  # one of ORDERS
    cache_key: str
    verdict: Verdict  # in the judge's own letters
    raw: str = ""
    error: str = ""
    usage: Mapping[str, int] = field(default_factory=dict)
    cost_usd: Decimal | None = None
    latency_ms: float | None = None
    is_cached: bool = False
    is_late: bool = False  # given up while it was asked: whether it was answered, and billed, is not known

    @property
    def side(self) -> PairVerdict:
        """The verdict with the order taken out."""
        if self.verdict is Verdict.A:
            return PairVerdict.LEFT if self.order == "lr" else PairVerdict.RIGHT
        if self.verdict is Verdict.B:
            return PairVerdict.RIGHT if self.order == "lr" else PairVerdict.LEFT
        return PairVerdict(self.verdict.value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """Both orders and what they come to."""

    pair: Pair
    verdict: PairVerdict
    calls: tuple[Call, ...]  # empty for two equal answers, which need no judge


async def judge_pair(
    completer: Completer, judge: Judge, pair: Pair, *, cache: MutableMapping[str, Call] | None = None
) -> Judgement:
    """Ask in both orders, once more where a reply had no verdict. Only calls with a verdict enter the cache."""
    if pair.left == pair.right:
        return Judgement(pair=pair, verdict=PairVerdict.TIE, calls=())
    cache = {} if cache is None else cache
    calls: list[Call] = []
    decisive = []
    for order in ORDERS:
        key = cache_key(judge, pair, order=order)
        if (known := cache.get(key)) is not None:
            made = [as_cached(known)]
        else:
            made = await _ask(completer, judge, pair, order=order, key=key)
        calls += made
        decisive.append(made[-1])
        if made[-1].verdict.is_decided:
            cache[key] = made[-1]
    return Judgement(pair=pair, verdict=combined(decisive[0].side, decisive[1].side), calls=tuple(calls))


def as_cached(call: Call) -> Call:
    """Said before: nothing was asked, nothing was paid, and how long it took then says nothing about now."""
    return replace(call, is_cached=True, cost_usd=Decimal(0), usage={}, latency_ms=None)


def late(pair: Pair, why: str) -> Judgement:
    """A pair on which the judge was given up."""
    call = Call(order=ORDERS[0], cache_key="", verdict=Verdict.ERROR, error=why, is_late=True)
    return Judgement(pair=pair, verdict=PairVerdict.ERROR, calls=(call,))


def combined(first: PairVerdict, second: PairVerdict) -> PairVerdict:
    """What two orders come to."""
    for undecided in (PairVerdict.ERROR, PairVerdict.INVALID):
        if undecided in (first, second):
            return undecided
    return first if first is second else PairVerdict.TIE


def cache_key(judge: Judge, pair: Pair, *, order: str, repeat: int = 0) -> str:
    """Everything that could change the reply: judge, prompt, parser, settings, task, answers, order and sample."""
    parts = [
        judge.endpoint, judge.model, judge.prompt_digest, judge.parser_version, dict(judge.sampling),
        pair.task, pair.left, pair.right, order, repeat,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


async def _ask(completer: Completer, judge: Judge, pair: Pair, *, order: str, key: str) -> list[Call]:
    shown = (pair.left, pair.right) if order == "lr" else (pair.right, pair.left)
    request = judge_messages(pair.task, *shown, system=judge.system)
    first = await _call(completer, judge, request, order=order, key=key)
    if first.verdict is not Verdict.INVALID:
        return [first]
    return [
        first,
        await _call(completer, judge, repair_messages(request, first.raw, judge.repair), order=order, key=key),
    ]


async def _call(completer: Completer, judge: Judge, request: Messages, *, order: str, key: str) -> Call:
    try:
        completion: Completion = await completer.complete(request, judge.options)
    except CompletionFailed as failure:
        return Call(order=order, cache_key=key, verdict=Verdict.ERROR, error=str(failure))
    return Call(
        order=order,
        cache_key=key,
        verdict=parse_verdict(completion.text),
        raw=completion.text,
        usage=completion.usage,
        cost_usd=completion.cost_usd,
        latency_ms=completion.latency_ms,
    )
