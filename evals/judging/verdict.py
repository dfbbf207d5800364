"""What a judge may have said, and how its words become that.

A reply that cannot be understood is `invalid`: never a tie, never a loss. The reader takes JSON first, also fenced,
wrapped in prose or cut off; then `[[A]]`; then prose, anchored on a cue, a connector and a letter ("final grade is
B"). It never goes looking for a first letter: "As a judge, ..." is not a vote for A.
"""

import re
from enum import StrEnum
from typing import Any

from evals.judging.json_reply import objects_in, value_of, without_objects

PARSER_VERSION = "1"


class Verdict(StrEnum):
    A = "A"
    B = "B"
    TIE = "tie"
    BOTH_BAD = "both_bad"
    INVALID = "invalid"  # a reply, but no verdict in it
    ERROR = "error"  # no reply

    @property
    def is_decided(self) -> bool:
        return self not in (Verdict.INVALID, Verdict.ERROR)


_SPELLINGS = {
    "a": Verdict.A, "b": Verdict.B,
    "tie": Verdict.TIE, "draw": Verdict.TIE, "equal": Verdict.TIE, "c": Verdict.TIE,
    "both_bad": Verdict.BOTH_BAD, "both bad": Verdict.BOTH_BAD, "neither": Verdict.BOTH_BAD,
}  # fmt: skip

_BRACKETS = re.compile(r"\[\[\s*(A|B|C|tie)\s*\]\]")
_CUT_OFF = re.compile(r'(?<!\\)"verdict"\s*:\s*"(A|B|tie|both_bad)(?:"|\s*$)')
_CUE = (
    r"(?i:verdict|winner|grade|choice|judge?ment|decision|"
    r"better (?:answer|one|response)|prefer(?:red|ence)(?: answer)?)"
)
_PROSE = re.compile(
    rf"\b(?P<final>(?i:final|overall)\s+)?{_CUE}\b[*_\"'`]*\s*(?:is|goes to|:|=|->|→)"
    r"[\s:*_\"'`(\[]*(?:(?i:answer|response|option|assistant)\s+)?"
    r"(?P<letter>A|B|(?i:(?:a\s+)?(?:tie|draw)|both[ _]bad|neither))\b(?![’'])",
)


def parse_verdict(text: str) -> Verdict:
    """The verdict in a judge's reply; invalid where there is none, or where there are two that differ."""
    objects = list(objects_in(text))
    in_json = [value for found, _ in objects if (value := value_of(found, "verdict")) is not None]
    text = without_objects(text, objects)
    for found in (in_json, _CUT_OFF.findall(text), _BRACKETS.findall(text), _in_prose(text)):
        verdicts = {spelled for word in found if (spelled := _spelled(word)) is not None}
        if found:
            return verdicts.pop() if len(verdicts) == 1 else Verdict.INVALID
    return Verdict.INVALID


def _spelled(word: Any) -> Verdict | None:
    if not isinstance(word, str):
        return None
    plain = word.strip().strip("[]*\"'`. ").lower().removeprefix("answer ").removeprefix("a ")
    return _SPELLINGS.get(plain)


def _in_prose(text: str) -> list[str]:
    """Letters after a cue; where the judge marks one as final, only those."""
    matches = list(_PROSE.finditer(text))
    final = [match for match in matches if match["final"]]
    return [match["letter"] for match in final or matches]
