"""One answer before a judge, by a rubric, beside a reference where the protocol wants one.

A reply without a mark is repaired once; what stays unreadable is invalid and what could not be asked is an error: both
have no value, and neither is ever a 0.
"""

import hashlib
import json
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any

from evals.judging.completer import Completer, Completion, CompletionFailed, Messages
from evals.judging.judge import Judge, Protocol
from evals.judging.marks import parse_mark
from evals.judging.rubrics import rating_messages, repair_messages
from evals.judging.weighted import weighted_mark

NO_PROBABILITIES = "the reply came without the probabilities of its tokens"  # asking again would not bring them


class RatingState(StrEnum):
    """What came of a rating."""

    SCORED = "scored"
    INVALID = "invalid"  # a reply, but no mark in it
    ERROR = "error"  # no reply


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One answer to one task."""

    key: str
    task: Any  # the prompt's text or its messages
    answer: str
    reference: str | None = None  # an answer known to be right


@dataclass(frozen=True, kw_only=True, slots=True)
class RatingCall:
    """One request to the judge, or its repair."""

    cache_key: str
    state: RatingState
    value: float | None = None  # in [0, 1]: 0 is the floor of the scale
    mark: float | None = None  # on the judge's own scale; weighted where the protocol says so
    fault: str = ""  # why a reply is invalid
    raw: str = ""
    error: str = ""
    usage: Mapping[str, int] = field(default_factory=dict)
    cost_usd: Decimal | None = None
    latency_ms: float | None = None
    is_cached: bool = False
    is_late: bool = False  # given up while it was asked: whether it was answered, and billed, is not known


@dataclass(frozen=True, kw_only=True, slots=True)
class Rating:
    """What the judge came to, and on the way to it."""

    item: Item
    calls: tuple[RatingCall, ...]

    @property
    def last(self) -> RatingCall:
        return self.calls[-1]

    @property
    def state(self) -> RatingState:
        return self.last.state

    @property
    def value(self) -> float | None:
        return self.last.value

    @property
    def reason(self) -> str:
        """Why there is no value; empty where there is one."""
        return self.last.error or self.last.fault


async def rate(
    completer: Completer,
    judge: Judge,
    item: Item,
    *,
    cache: MutableMapping[str, RatingCall] | None = None,
    repeat: int = 0,
) -> Rating:
    """Ask, once more where the reply had no mark. Only calls with a mark enter the cache.

    An item without the reference that the protocol needs is an error that nobody is asked about.
    """
    if judge.protocol is Protocol.REFERENCE and not item.reference:
        call = RatingCall(cache_key="", state=RatingState.ERROR, error="no reference to judge by")
        return Rating(item=item, calls=(call,))
    key = rating_key(judge, item, repeat=repeat)
    cache = {} if cache is None else cache
    if (known := cache.get(key)) is not None:
        return Rating(item=item, calls=(as_cached(known),))
    reference = item.reference if judge.protocol is Protocol.REFERENCE else None
    request = rating_messages(judge.system, item.task, item.answer, reference)
    calls = [await _call(completer, judge, request, key=key)]
    if calls[0].state is RatingState.INVALID and calls[0].fault != NO_PROBABILITIES:
        again = repair_messages(request, calls[0].raw, judge.repair)
        calls.append(await _call(completer, judge, again, key=key))
    if calls[-1].state is RatingState.SCORED:
        cache[key] = calls[-1]
    return Rating(item=item, calls=tuple(calls))


def as_cached(call: RatingCall) -> RatingCall:
    """Said before: nothing was asked, and nothing was paid."""
    return replace(call, is_cached=True, cost_usd=Decimal(0), usage={}, latency_ms=None)


def late(item: Item, why: str) -> Rating:
    """An item on which the judge was given up."""
    return Rating(item=item, calls=(RatingCall(cache_key="", state=RatingState.ERROR, error=why, is_late=True),))


def rating_key(judge: Judge, item: Item, *, repeat: int = 0) -> str:
    """Everything that could change the reply; two repeats never share one."""
    parts = [
        "rating", judge.endpoint, judge.model, judge.protocol.value, judge.prompt_digest, judge.parser_version,
        dict(judge.sampling), item.task, item.answer,
        item.reference if judge.protocol is Protocol.REFERENCE else None, repeat,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


async def _call(completer: Completer, judge: Judge, request: Messages, *, key: str) -> RatingCall:
    try:
        completion = await completer.complete(request, judge.options)
    except CompletionFailed as failure:
        return RatingCall(cache_key=key, state=RatingState.ERROR, error=str(failure))
    mark, fault = _mark(judge, completion)
    return RatingCall(
        cache_key=key,
        state=RatingState.INVALID if mark is None else RatingState.SCORED,
        value=None if mark is None else judge.rubric.scale.share(mark),
        mark=mark,
        fault=fault,
        raw=completion.text,
        usage=completion.usage,
        cost_usd=completion.cost_usd,
        latency_ms=completion.latency_ms,
    )


def _mark(judge: Judge, completion: Completion) -> tuple[float | None, str]:
    read = parse_mark(completion.text, judge.rubric.scale)
    if judge.protocol is not Protocol.WEIGHTED or read.value is None:
        return read.value, read.fault
    if not completion.tokens:
        return None, NO_PROBABILITIES
    weighted = weighted_mark(read.value, completion.tokens, judge.rubric.scale)
    return read.value if weighted is None else weighted, ""
