"""Which settled turns a person should look at: rules over a turn, its label, its scores and what came before. Pure.

A finding never changes a label or a reward; a reviewer does (feedback.services.review). `RULES` names every rule that
raises flags today, those of people included; a flag of a rule that is not among them is of a rule that was retired.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

TESTS_DISAGREE = "tests_disagree"
TESTS = "unit_tests"  # the scorer whose word is held against the user's
MIN_HISTORY = 20  # turns of the slice before a length can be called unusual
LENGTH_FACTOR = 4.0
MIN_LENGTH_CHANGE = 40  # characters; short lines vary by factors
MANY_RETRIES = 2
RETRIES_WITHIN = timedelta(minutes=2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """What a flag of this rule means, and how much it says."""

    severity: int  # 0 to 5; reviewers are given the highest first
    meaning: str


BY_HAND, SAMPLE = "by_hand", "sample"
RULES: Mapping[str, Rule] = {
    BY_HAND: Rule(severity=5, meaning="a person asked for a look"),
    TESTS_DISAGREE: Rule(severity=4, meaning="the user and the unit tests say opposite things"),
    "malformed_output": Rule(severity=3, meaning="strange characters, or a code fence that is never closed"),
    "empty_output": Rule(severity=3, meaning="the completion is empty"),
    "repeated_retry": Rule(severity=2, meaning="retried again and again within two minutes"),
    "length_change": Rule(severity=1, meaning="much longer or shorter than its slice was before"),
    SAMPLE: Rule(severity=0, meaning="drawn at random from what no rule flagged, to measure the rules"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """A turn as triage sees it."""

    outcome: str | None  # of its label
    completion: str
    has_tool_calls: bool = False
    finish_reason: str | None = None
    error: str | None = None
    scores: Mapping[str, float | None] = field(default_factory=dict)  # by scorer; None is unscored
    lengths_before: Sequence[int] = ()  # characters of the turns of the same slice before it
    retried_at: datetime | None = None  # when this turn was retried
    session_retries: Sequence[datetime] = ()  # of all turns of the session


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    rule: str
    reason: str


def triage(seen: Seen) -> list[Finding]:
    """Every rule that has something to say."""
    rules = (_tests_disagree, _empty, _malformed, _length_changed, _retried_repeatedly)
    return [finding for rule in rules if (finding := rule(seen))]


def _tests_disagree(seen: Seen) -> Finding | None:
    score = seen.scores.get(TESTS)
    if seen.outcome == "accept" and score == 0:
        return Finding(rule=TESTS_DISAGREE, reason="the user accepted what fails its unit tests")
    if seen.outcome == "reject" and score == 1:
        return Finding(rule=TESTS_DISAGREE, reason="the user rejected what passes its unit tests")
    return None


def _empty(seen: Seen) -> Finding | None:
    if seen.completion.strip() or seen.has_tool_calls or seen.error is not None:
        return None
    return Finding(rule="empty_output", reason="the completion is empty")


def _malformed(seen: Seen) -> Finding | None:
    strange = next(
        (char for char in seen.completion if char == "\ufffd" or (char < " " and char not in "\t\n\r")), None
    )
    if strange is not None:
        return Finding(rule="malformed_output", reason=f"the completion holds the character U+{ord(strange):04X}")
    if seen.finish_reason == "stop" and seen.completion.count("```") % 2:
        return Finding(rule="malformed_output", reason="a code fence is opened and never closed")
    return None


def _length_changed(seen: Seen) -> Finding | None:
    if len(seen.lengths_before) < MIN_HISTORY:
        return None
    length, median = len(seen.completion), statistics.median(seen.lengths_before)
    is_far = length > median * LENGTH_FACTOR or length * LENGTH_FACTOR < median
    if not is_far or abs(length - median) < MIN_LENGTH_CHANGE:
        return None
    return Finding(rule="length_change", reason=f"{length} characters where the median before was {median:.0f}")


def _retried_repeatedly(seen: Seen) -> Finding | None:
    if seen.retried_at is None:
        return None
    number = sum(seen.retried_at - RETRIES_WITHIN <= at <= seen.retried_at for at in seen.session_retries)
    if number < MANY_RETRIES:
        return None
    return Finding(rule="repeated_retry", reason=f"{number} retries in this session within two minutes")
