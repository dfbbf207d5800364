"""What mark a judge may have given, and how its words become one.

A mark that cannot be read, or lies off the scale, is `invalid`: never a 0. The reader takes JSON first, also fenced,
wrapped in prose or cut off after the mark; then `[[4]]`; then a reply that is nothing but a number; then prose,
anchored on a cue, a connector and a number ("the final score is 4 out of 5"). It never goes looking for a first number.
"""

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from evals.judging.json_reply import objects_in, value_of, without_objects

PARSER_VERSION = "marks-1"
KEYS = ("score", "rating", "mark")

_NUMBER = r"[-+]?\d+(?:\.\d+)?"
_CUT_OFF = re.compile(rf'(?<!\\)"(?i:score|rating|mark)"\s*:\s*"?({_NUMBER})"?\s*[,}}\n]')
_BRACKETS = re.compile(rf"\[\[\s*({_NUMBER}(?:\s*/\s*{_NUMBER})?)\s*\]\]")
_PROSE = re.compile(
    r"\b(?P<final>(?:final|overall)\s+)?(?:score|rating|grade|mark)\b[*_'`]*\s*(?:is|of|:|=|->|→)[\s:*_\"'`(]*"
    rf"(?P<mark>{_NUMBER}(?:\s*(?:/|out of)\s*{_NUMBER})?)(?![\d.]*\d|\s*%)",
    re.IGNORECASE,
)
_OF = re.compile(rf"({_NUMBER})\s*(?:/|out of)\s*({_NUMBER})", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """Marks from `low`, the floor, to `high`."""

    low: float = 1.0
    high: float = 5.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"a scale from {self.low} to {self.high}; low must be below high")

    def share(self, mark: float) -> float:
        """0 for the floor, 1 for the top."""
        return (mark - self.low) / (self.high - self.low)

    def holds(self, mark: float) -> bool:
        return self.low <= mark <= self.high


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """What was read: a mark on the scale, or why there is none.

    Example: "0.8" on 0 to 1 -> value 0.8; "1.2" -> value None, fault "1.2 is not between 0 and 1"
    """

    value: float | None
    fault: str = ""


def parse_mark(text: str, scale: Scale) -> Mark:
    """The mark in a judge's reply; a fault where there is none, where two differ, or where it is off the scale."""
    for found in _candidates(text):
        marks = [_number(one, scale) for one in found]
        if not marks:
            continue
        if len(set(marks)) > 1:
            return Mark(value=None, fault=f"{len(set(marks))} marks that differ")
        return _checked(marks[0], found[0], scale)
    return Mark(value=None, fault="no mark that could be read")


def _candidates(text: str) -> list[list[Any]]:
    """Where a mark may stand, in the order in which a place is believed."""
    objects = list(objects_in(text))
    in_json = [value for found, _ in objects if (value := value_of(found, *KEYS)) is not None]
    rest = without_objects(text, objects)
    return [in_json, _CUT_OFF.findall(rest), _BRACKETS.findall(rest), _alone(rest), _in_prose(rest)]


def _alone(text: str) -> list[Any]:
    """A reply that is one JSON number, or one in quotes."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [found] if isinstance(found, (int, float, str)) and not isinstance(found, bool) else []


def _in_prose(text: str) -> list[str]:
    """Marks after a cue; where the judge calls one final, only those."""
    matches = list(_PROSE.finditer(text))
    final = [match for match in matches if match["final"]]
    return [match["mark"] for match in final or matches]


def _number(said: Any, scale: Scale) -> float | None:
    """None for what is no number; "4/5" counts where 5 is the top of the scale."""
    if isinstance(said, bool):
        return None
    if isinstance(said, str):
        said = said.strip()
        if (of := _OF.fullmatch(said)) is not None:
            said = of[1] if float(of[2]) == scale.high else ""
        if not re.fullmatch(_NUMBER, said):
            return None
    if not isinstance(said, (int, float, str)):
        return None
    try:
        return float(said)
    except OverflowError:
        return math.inf


def _checked(mark: float | None, said: Any, scale: Scale) -> Mark:
    if mark is None:
        return Mark(value=None, fault=f"{str(said)[:40]!r} is no mark")
    if not scale.holds(mark):  # not a number is in no scale either
        return Mark(value=None, fault=f"{mark:g} is not between {scale.low:g} and {scale.high:g}")
    return Mark(value=mark)
