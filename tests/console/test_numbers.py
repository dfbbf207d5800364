"""How numbers are written: three digits, a real minus, and unknown in words."""

import pytest

from console.templatetags import console_tags as tags


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234567, "1,230,000"),
        (0.000012345, "1.23e-05"),
        (0.25, "0.25"),
        (0, "0"),
        (-3.14159, "\u22123.14"),
        (100.0, "100"),
    ],
)
def test_a_number_has_three_significant_digits(value, text):
    assert tags.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.4, "0.4 s"), (3.25, "3.2 s"), (42.4, "42 s"), (250, "4 min 10 s"), (7260, "2 h 1 min")]
)
def test_seconds_are_written_as_people_say_them(value, text):
    assert tags.seconds(value) == text


def test_shares_and_their_differences():
    assert tags.share(0.3842) == "38.4 %" and tags.points(-0.031) == "\u22123.1" and tags.points(0.02) == "+2.0"


@pytest.mark.parametrize(
    "filter_",
    [tags.number, tags.count, tags.signed, tags.share, tags.points, tags.seconds, tags.size, tags.milliseconds],
)
def test_what_is_unknown_is_said_and_never_zero(filter_):
    assert "no data" in filter_(None) and "0" not in filter_(None)


def test_bytes_are_written_in_decimal_units():
    assert tags.size(269_060_552) == "269 MB" and tags.size(512) == "512 B"
