"""The rules that ask for a person, each on the smallest turn that triggers it and the nearest that does not."""

from datetime import UTC, datetime, timedelta

import pytest

from feedback.triage import Seen, triage

AT = datetime(2026, 11, 30, 6, 0, tzinfo=UTC)


def rules(**fields) -> list[str]:
    return [finding.rule for finding in triage(Seen(**{"outcome": None, "completion": "a + b"} | fields))]


@pytest.mark.parametrize(
    ("outcome", "score", "found"),
    [
        ("accept", 0.0, ["tests_disagree"]),
        ("reject", 1.0, ["tests_disagree"]),
        ("accept", 1.0, []),
        ("reject", 0.0, []),
        ("accept", 0.5, []),
        ("accept", None, []),  # unscored is not 0
        ("silence", 0.0, []),
        (None, 0.0, []),
    ],
)
def test_tests_that_disagree_with_the_user(outcome, score, found):
    assert rules(outcome=outcome, scores={"unit_tests": score}) == found


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"completion": " \n"}, ["empty_output"]),
        ({"completion": "", "has_tool_calls": True}, []),
        ({"completion": "", "error": "engine died"}, []),
        ({"completion": "a\ufffdb"}, ["malformed_output"]),
        ({"completion": "a\x07b"}, ["malformed_output"]),
        ({"completion": "a\tb\r\n한국어 🙂"}, []),
        ({"completion": "```python\nx = 1", "finish_reason": "stop"}, ["malformed_output"]),
        ({"completion": "```python\nx = 1", "finish_reason": "length"}, []),
        ({"completion": "```python\nx = 1\n```", "finish_reason": "stop"}, []),
    ],
)
def test_empty_and_malformed_output(fields, found):
    assert rules(**fields) == found


@pytest.mark.parametrize(
    ("length", "before", "found"),
    [
        (81, [20] * 20, ["length_change"]),
        (80, [20] * 20, []),  # four times is not more than four times
        (81, [20] * 19, []),  # too little history
        (20, [4] * 20, []),  # far by factor, near by characters
        (24, [100] * 20, ["length_change"]),
        (25, [100] * 20, []),
    ],
)
def test_a_sudden_change_of_length(length, before, found):
    assert rules(completion="x" * length, lengths_before=before) == found


@pytest.mark.parametrize(
    ("seconds", "found"),
    [([0], []), ([-120, 0], ["repeated_retry"]), ([-121, 0], []), ([0, 5], []), ([-10, -5, 0], ["repeated_retry"])],
)
def test_repeated_retries_within_two_minutes(seconds, found):
    retries = [AT + timedelta(seconds=number) for number in seconds]
    assert rules(retried_at=AT, session_retries=retries) == found


def test_a_turn_nobody_retried_is_not_flagged_for_its_neighbours():
    assert rules(session_retries=[AT, AT]) == []
