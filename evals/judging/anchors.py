"""Items a judge is shown again and again, and how far it has moved between two times, or from another judge.

An item is {"key", "task", "answer"} for judges of single answers, with "reference" where they want one, or
{"key", "task", "left", "right"} for pairwise ones. "gold" is what people say about it: a number from 0 to 1, for a pair
1 for left and 0 for right. A set holds items of one kind.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evals.judging.pairwise import Pair
from evals.judging.pointwise import Item
from evals.statistics.agreement import Agreement, cohen_kappa
from evals.statistics.estimate import Estimate
from evals.statistics.means import estimate_mean

MAX_ITEMS = 200
MAX_BYTES = 4 << 20
LEAST = 20  # items in common; fewer say nothing about drift
BOUND = 0.8  # of the items a judge says the same about; below, it is paused
SINGLE, PAIR = {"key", "task", "answer"}, {"key", "task", "left", "right"}
OPTIONAL = {"reference", "gold"}


class InvalidAnchors(ValueError):
    """A set that cannot be used; says which item and why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """Later values minus earlier ones, over the items both have."""

    shift: Estimate  # mean change: above 0 the judge has become more lenient, or prefers the left more often
    agreement: Agreement  # on which half of the scale, of a pair on which side

    @property
    def is_unstable(self) -> bool:
        share = self.agreement.agreement.share
        return self.agreement.n >= LEAST and share is not None and share < BOUND


def parse_anchors(items: Any) -> list[dict[str, Any]]:
    """Raises InvalidAnchors."""
    if not isinstance(items, list) or not 1 <= len(items) <= MAX_ITEMS:
        raise InvalidAnchors(f"send a list of 1 to {MAX_ITEMS} items")
    for place, item in enumerate(items):
        if not isinstance(item, dict) or not (item.keys() >= SINGLE or item.keys() >= PAIR):
            raise InvalidAnchors(f"item {place} has neither key, task, answer nor key, task, left, right")
        if unknown := sorted(item.keys() - SINGLE - PAIR - OPTIONAL):
            raise InvalidAnchors(f"item {place}: {unknown[0]} is not known")
        texts = ("key", "answer", "left", "right", "reference")
        if wrong := [name for name in texts if name in item and not isinstance(item[name], str)]:
            raise InvalidAnchors(f"item {place}: {wrong[0]} is no text")
        if not isinstance(item["task"], (str, list)) or not item["key"]:
            raise InvalidAnchors(f"item {place}: task is a text or a list of messages, and key is not empty")
        gold = item.get("gold")
        if gold is not None and not (_is_number(gold) and 0 <= gold <= 1):
            raise InvalidAnchors(f"item {place}: gold is {gold!r}; write a number from 0 to 1")
    if len({is_pair(item) for item in items}) > 1:
        raise InvalidAnchors("pairs and single answers are in one set; make two sets")
    keys = [item["key"] for item in items]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InvalidAnchors(f"key {twice!r} comes twice")
    if len(json.dumps(items)) > MAX_BYTES:
        raise InvalidAnchors(f"the set is larger than {MAX_BYTES} bytes")
    return items


def is_pair(item: Mapping[str, Any]) -> bool:
    return "left" in item


def digest_of(items: Sequence[Mapping[str, Any]]) -> str:
    return hashlib.sha256(json.dumps(items, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def as_item(item: Mapping[str, Any]) -> Item:
    return Item(key=item["key"], task=item["task"], answer=item["answer"], reference=item.get("reference"))


def as_pair(item: Mapping[str, Any]) -> Pair:
    return Pair(key=item["key"], task=item["task"], left=item["left"], right=item["right"])


def drift(earlier: Mapping[str, float | None], later: Mapping[str, float | None]) -> Drift:
    """From key to value in [0, 1]; None, without a mark, drops the item."""
    both = [
        (before, after)
        for key, before in sorted(earlier.items())
        if before is not None and (after := later.get(key)) is not None
    ]
    return Drift(
        shift=estimate_mean([after - before for before, after in both]),
        agreement=cohen_kappa([side(before) for before, _ in both], [side(after) for _, after in both]),
    )


def side(value: float) -> str:
    """What a value in [0, 1] says: the upper half, the lower, or the middle."""
    return "middle" if value == 0.5 else "upper" if value > 0.5 else "lower"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
