"""How money is written: unknown is said, never written as 0; the exact amount is always in the title."""

from decimal import ROUND_HALF_EVEN, Context, Decimal

from django import template
from django.utils.html import format_html

from console.templatetags.console_tags import unknown

register = template.Library()

SMALLEST_DIGITS = 16
SMALLEST = Decimal(1).scaleb(-SMALLEST_DIGITS)  # below it lies only what dividing by an hour's 3600 seconds leaves
SHORT = Context(prec=3, rounding=ROUND_HALF_EVEN)


@register.filter
def usd(value: Decimal | None) -> str:
    """Three significant digits, two decimals from 100 on: $0.00412, $3.75, $1,204.50."""
    if value is None:
        return unknown("unpriced")
    short = f"{value:,.2f}" if value >= 100 else _plain(value.normalize(SHORT))
    return format_html('<span class="nowrap" title="{}">${}</span>', usd_exact(value), short)


@register.filter
def usd_exact(value: Decimal | None) -> str:
    """Every digit: $0.001000000001."""
    return unknown("unpriced") if value is None else f"${_plain(value)}"


def _plain(value: Decimal) -> str:
    rounded = value.quantize(SMALLEST) if value != round(value, SMALLEST_DIGITS) else value
    text = f"{rounded:,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
