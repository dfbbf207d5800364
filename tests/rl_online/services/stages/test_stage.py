"""Options of a stage, from JSON and from text."""

import pytest

from registry.errors import InvalidInput
from rl_online.services.stages.stage import Option, parse_options, spread
from rl_online.services.stages.table import STAGES, find_stage


def test_what_is_not_said_has_its_default():
    options = parse_options(STAGES["sft"], {"edits": "no", "at_most": "8", "least_value": 1})
    assert options == {
        "accepted": True,
        "gold": True,
        "edits": False,
        "least_value": 1.0,
        "at_least": 16,
        "at_most": 8,
    }
    assert type(options["least_value"]) is float


@pytest.mark.parametrize(
    ("default", "given", "wanted"),
    [
        (16, "many", "give a whole number"),
        (16, -1, "give a whole number"),
        (16, True, "give a whole number"),
        (16, 20_001, "a whole number of at least 0 and at most 20,000"),
        (16, "9" * 400, "at most 20,000"),
        (0.5, 10**400, "a number of at least 0 and at most 20,000"),
        (0.5, "nan", "give a number of at least 0"),
        (True, "perhaps", "give true or false"),
        ("a", "c", "give one of a, b"),
        ("", "a\0b", "text of at most 500 printable characters"),
        ("", "\ud800", "printable"),
        ("", "a" * 501, "at most 500"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_the_name_and_what_would(default, given, wanted):
    option = Option(name="this", default=default, help="", choices=("a", "b") if default == "a" else ())
    with pytest.raises(InvalidInput, match=wanted) as refused:
        option.parse(given)
    assert refused.value.field == "this"


def test_an_option_of_another_stage_is_refused():
    with pytest.raises(InvalidInput, match="retries is not an option of sft; known are accepted, gold, edits"):
        parse_options(STAGES["sft"], {"retries": True})


def test_an_unknown_kind_is_refused_with_those_there_are():
    with pytest.raises(InvalidInput, match=r"'magic' is no kind of update; choose from online, .*sft, pairs"):
        find_stage("magic")


def test_every_option_and_purpose_is_half_a_sentence_and_every_setting_exists():
    from rl_online.rewards.update_config import UpdateConfig

    for stage in STAGES.values():
        assert {*stage.settings, *stage.preset} <= UpdateConfig().to_json().keys()
        assert stage.purpose.endswith(".") and not any(one.help.endswith(".") for one in stage.options)


def test_a_few_are_taken_evenly():
    assert (spread([1, 2, 3, 4, 5, 6], 3), spread([1, 2], 3)) == ([1, 3, 5], [1, 2])
