import pytest

from evals.scorers.cases import cases_of, shown_calls, standing_of
from evals.scorers.sandbox.codec import encode
from evals.scorers.scorer import ProblemSpec

CHECK = "def check(call):\n    assert call(1) == 3\n    assert call(5) == 7\n    assert not call([])"


def problem(prompt, tests):
    return ProblemSpec(id="p", prompt=prompt, tests=tests)


def test_plain_cases_and_asserts_are_read_alike():
    plain = {"function": "f", "cases": [{"args": [1], "expected": 3}, {"args": [], "kwargs": {"n": 2}, "expected": 4}]}
    coded = {"function": "f", "code": "assert f(1) == 3\nassert 4 == f(n=2)"}
    assert cases_of(plain) == cases_of(coded)


def test_the_asserts_of_a_check_function_are_cases():
    assert [case.expected for case in cases_of({"function": "f", "code": CHECK})] == ["3", "7", "False"]


@pytest.mark.parametrize(
    "statement", ["for n in range(3):\n    assert f(n) == n", "assert f(x) == 1", "assert abs(f(1) - f(y)) < 1"]
)
def test_a_case_whose_arguments_cannot_be_read_is_never_taken_for_a_shown_one(statement):
    (case,) = cases_of({"function": "f", "code": statement})
    assert not case.calls


def test_examples_in_the_prompt_are_found_however_they_stand():
    prompt = (
        'def f(a, b=(1, 2)):\n    """f(")", [1]) is 3\n    >>> f({"a": 1}, b=-2)\n    4\n    f(a) ➞ x, ff(9), f(8"""'
    )
    assert shown_calls(problem(prompt, {"function": "f"})) == {repr(([")", [1]], [])), repr(([{"a": 1}], [("b", -2)]))}


def test_a_table_of_the_prompts_examples_is_not_general():
    tests = {"function": "f", "code": CHECK}
    shown = problem("f(1) is 3, f(5) is 7", tests)
    assert (standing_of(shown, "110").num_hidden, standing_of(shown, "110").is_general) == (1, False)
    assert standing_of(problem("", tests), "110").is_general


def test_a_constant_is_not_general_and_one_case_more_is():
    cases = [{"args": [n], "expected": n > 1} for n in range(5)]  # False, False, True, True, True
    found = problem("", {"function": "f", "cases": cases})
    assert standing_of(found, "00111").num_by_constant == 3
    assert not standing_of(found, "00111").is_general
    assert standing_of(found, "01111").is_general


def test_tests_that_a_constant_passes_cannot_tell():
    found = problem("", {"function": "f", "cases": [{"args": [1], "expected": 3}, {"args": [5], "expected": 3}]})
    assert not standing_of(found, "11").can_tell


def test_tests_that_the_prompt_shows_whole_cannot_tell():
    cases = [{"args": [1], "expected": 3}, {"args": [encode((5,))], "expected": 7}]
    found = problem("f(1) gives 3, f((5,)) gives 7", {"function": "f", "cases": cases})
    assert (standing_of(found, "11").num_hidden, standing_of(found, "11").can_tell) == (0, False)


def test_an_answer_that_never_got_to_the_cases_passed_none():
    assert standing_of(problem("", {"function": "f", "code": CHECK}), "").num_hidden_passed == 0
