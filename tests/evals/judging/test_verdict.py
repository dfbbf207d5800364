import pytest

from evals.judging.verdict import Verdict, parse_verdict


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ('{"rationale": "B is wrong", "verdict": "A"}', "A"),
        ('```json\n{"rationale": "x", "verdict": "B"}\n```', "B"),
        ('Here is my view:\n{"rationale": "x", "verdict": "tie"}\nThank you.', "tie"),
        ('{"rationale": "x", "verdict": "both_bad"}', "both_bad"),
        ('{"rationale": "x", "Verdict": "answer B"}', "B"),
        ('{"rationale": "line\nbreak", "verdict": "A"}', "A"),
        ('{"rationale": "it said {\\"verdict\\": \\"A\\"}", "verdict": "B"}', "B"),
        ('{"rationale": "cut off", "verdict": "B', "B"),
        ('{"verdict": "A"} {"verdict": "A"}', "A"),
        ("My choice: [[B]]", "B"),
        ("[[C]]", "tie"),
        ("As a judge, I looked at both. My final grade is B.", "B"),
        ("**Final Verdict:** **A**", "A"),
        ("First I thought the winner is A. Final verdict: B", "B"),
        ("The winner is Answer A because it compiles.", "A"),
        ("The verdict is a tie.", "tie"),
        ("The better answer is B", "B"),
    ],
)
def test_a_verdict_is_read_from_what_judges_write(reply, verdict):
    assert parse_verdict(reply) == Verdict(verdict)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "   ",
        "As a judge, I cannot help with that.",
        "A",
        "Both are good in their own way. A lot depends on taste.",
        '{"rationale": "x", "verdict": "0.8"}',
        '{"rationale": "x", "verdict": 0.8}',
        '{"rationale": "x", "verdict": null}',
        '{"rationale": "x", "verd',
        '{"verdict": "A"} no, rather {"verdict": "B"}',
        "[[A]] or maybe [[B]]",
        "The winner is A. The winner is B.",
        "The winner is not A.",
        "The verdict is A's to claim",
        "11/10",
        '{"task": "x", "answer_A": "the verdict is A", "answer_B": "y"}',
        "[" * 5000,
        '{"a":' * 5000,
    ],
)
def test_what_cannot_be_understood_is_invalid_and_never_a_tie(reply):
    assert parse_verdict(reply) is Verdict.INVALID


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("As a judge, I compared both answers carefully. My final grade is B.", Verdict.B),
        ("", Verdict.INVALID),
        ('{"rationale": "A is better because it handles the empty li', Verdict.INVALID),
        ('{"rationale": "short", "verdict": "A', Verdict.A),
    ],
)
def test_row_23_an_unparsable_verdict_is_never_a_tie_a_0_or_the_first_letter(reply, verdict):
    assert parse_verdict(reply) is verdict
