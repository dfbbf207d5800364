from decimal import Decimal as D

import pytest

from console.templatetags.money import usd, usd_exact


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("0", "$0"),
        ("0.004123456", "$0.00412"),
        ("3.7501", "$3.75"),
        ("12.999", "$13"),
        ("1204.5", "$1,204.50"),
        ("1E-9", "$0.000000001"),
    ],
)
def test_an_amount_has_three_digits_and_its_exact_value_in_the_title(value, text):
    shown = usd(D(value))
    assert f">{text}<" in shown and f'title="{usd_exact(D(value))}"' in shown


def test_unpriced_is_said_and_is_no_0():
    assert "unpriced" in usd(None) and "unpriced" in usd_exact(None)


@pytest.mark.parametrize(
    ("value", "text"),
    [("0.001000000001", "$0.001000000001"), ("1234567.10", "$1,234,567.1"), ("1E+3", "$1,000"), ("0E-10", "$0")],
)
def test_a_total_is_written_with_every_digit(value, text):
    assert usd_exact(D(value)) == text


def test_what_a_division_leaves_is_cut_far_behind_any_price():
    assert usd_exact(D(1) / 3) == "$0.3333333333333333"
