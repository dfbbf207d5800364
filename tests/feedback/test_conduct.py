import pytest

from feedback.conduct import Conduct, conduct_of, is_bad_call

CALL = {"type": "function", "function": {"name": "edit_file", "arguments": '{"path": "a.py"}'}}
DOES_NOTHING = Conduct(has_bad_call=False, asks_back=False, is_without_edit=True)


@pytest.mark.parametrize(
    ("call", "is_bad"),
    [
        (CALL, False),
        ({"name": "search", "input": {"q": "x"}}, False),
        ({"name": "list_files"}, False),  # a tool without arguments
        ({"function": {"name": "list_files", "arguments": ""}}, False),
        ({"function": {"name": "edit_file", "arguments": '{"path": "a.py"'}}, True),  # cut off
        ({"name": "search", "input": '["x"]'}, True),  # no object
        ({"name": " ", "input": {}}, True),
        ({"arguments": {}}, True),
        ("edit_file(a.py)", True),
    ],
)
def test_a_call_is_bad_when_no_tool_could_be_called_with_it(call, is_bad):
    assert is_bad_call(call) is is_bad


@pytest.mark.parametrize(
    ("completion", "tool_calls", "expected"),
    [
        ("Which file do you mean?", [], Conduct(has_bad_call=False, asks_back=True, is_without_edit=True)),
        ("Soll ich das **wirklich?** ", [], Conduct(has_bad_call=False, asks_back=True, is_without_edit=True)),
        ("Done.", [], DOES_NOTHING),
        ("Is that so? Done.", [], DOES_NOTHING),
        (
            "```python\nreturn 1\n```\nShall I go on?",
            [],
            Conduct(has_bad_call=False, asks_back=False, is_without_edit=False),
        ),
        ("Shall I go on?", [CALL], Conduct(has_bad_call=False, asks_back=False, is_without_edit=False)),
        ("", [CALL, {}], Conduct(has_bad_call=True, asks_back=False, is_without_edit=False)),
    ],
)
def test_what_an_answer_in_a_chat_does(completion, tool_calls, expected):
    assert conduct_of(completion=completion, tool_calls=tool_calls, is_chat=True) == expected


def test_a_raw_completion_is_its_own_edit_unless_it_is_blank():
    kept, blank = (conduct_of(completion=text, tool_calls=[], is_chat=False) for text in (" a + 2", "  "))
    assert kept and blank and (kept.is_without_edit, blank.is_without_edit) == (False, True)


def test_a_turn_that_brought_nothing_has_no_conduct():
    assert conduct_of(completion=None, tool_calls=[], is_chat=True) is None
