"""Marks as judges write them: a number or a fault, never a silent 0."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.judging.marks import Scale, parse_mark

UNIT, FIVE, TEN = Scale(low=0, high=1), Scale(low=1, high=5), Scale(low=1, high=10)


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ('{"rationale": "fine", "score": "0.8"}', 0.8),
        ('"0.8"', 0.8),
        ("0.8", 0.8),
        ('```json\n{"rationale": "x", "score": 0.8}\n```', 0.8),
        ('Let me see.\n{"rationale": "x", "score": 0.8}\nThank you.', 0.8),
        ('{"score": 0.8} {"score": "0.8"}', 0.8),
    ],
)
def test_f27_a_number_in_quotes_in_a_fence_or_in_prose_is_that_number(reply, value):
    assert parse_mark(reply, UNIT).value == value


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        ('{"score": 0.2} no, rather {"score": 0.9}', "2 marks that differ"),
        ("", "no mark that could be read"),
        ("   ", "no mark that could be read"),
        ("{}", "no mark that could be read"),
        ('{"score": 1.2}', "1.2 is not between 0 and 1"),
        ('{"score": -0.1}', "-0.1 is not between 0 and 1"),
        ('{"score": NaN}', "nan is not between 0 and 1"),
        ('{"score": Infinity}', "inf is not between 0 and 1"),
        ('{"score": 1e400}', "inf is not between 0 and 1"),
        ('{"score": null}', "no mark that could be read"),
        ('{"score": true}', "'True' is no mark"),
        ('{"score": "high"}', "'high' is no mark"),
        ('{"score": [0.8]}', "'[0.8]' is no mark"),
        ('{"rationale": "x", "sco', "no mark that could be read"),
    ],
)
def test_f27_what_is_no_mark_on_the_scale_is_a_fault_and_never_0(reply, fault):
    found = parse_mark(reply, UNIT)
    assert (found.value, found.fault) == (None, fault)


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ("Rating: [[4]]", 4),
        ("[[4/5]]", 4),
        ('{"rationale": "I would say score: 2", "score": 4}', 4),
        ('{"rationale": "the answer claims \\"score\\": 5", "Score": 2}', 2),
        ('{"score": 4, "rationale": "cut o', 4),
        ("As a judge with 3 criteria, my final score is 4 out of 5.", 4),
        ("First the score is 2. **Final score:** **4**", 4),
        ("Score = 3.5", 3.5),
        ('{"score": "4/5"}', 4),
    ],
)
def test_a_mark_is_read_where_a_cue_anchors_it(reply, value):
    assert parse_mark(reply, FIVE).value == value


@pytest.mark.parametrize(
    "reply",
    [
        "As a judge of 3 answers, I liked this one.",
        "1. It is correct. 2. It is short.",
        "4 of the 5 criteria are met.",
        "The score is 3. The score is 4.",
        "11/10",
        "Final score: 8/10",
        "Final score: 80%",
        '{"rationale": "cut off", "score": 4',
        '{"task": "rate it", "answer": "score: 5"}',
        "[" * 5000,
        '{"a":' * 5000,
    ],
)
def test_a_number_without_an_anchor_is_no_mark(reply):
    assert parse_mark(reply, FIVE).value is None


def test_a_mark_that_may_be_cut_off_is_not_guessed():
    assert parse_mark('{"rationale": "x", "score": 1', TEN).value is None  # 1, or the first half of 10


def test_mt_bench_judgements_read_as_their_authors_read_them(samples):
    rows = [json.loads(line) for line in (samples("mt_bench") / "gpt-4_single_excerpt.jsonl").open(encoding="utf-8")]
    read = [parse_mark(row["judgment"], TEN).value for row in rows]
    assert read == [None if row["score"] == -1 else row["score"] for row in rows] and len(rows) == 3


@given(st.text(max_size=200))
def test_no_reply_breaks_the_reader_or_leaves_the_scale(reply):
    value = parse_mark(reply, FIVE).value
    assert value is None or 1 <= value <= 5


@pytest.mark.parametrize(("low", "high"), [(1, 1), (5, 1), (float("nan"), 1), (0, float("inf"))])
def test_a_scale_that_is_none_is_refused(low, high):
    with pytest.raises(ValueError, match="low must be below high"):
        Scale(low=low, high=high)


def test_the_floor_is_0_and_the_top_is_1():
    assert [FIVE.share(mark) for mark in (1, 3, 5)] == [0, 0.5, 1]
