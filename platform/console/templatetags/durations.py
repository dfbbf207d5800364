"""How long spans of time are written, and moments that lie ahead."""

from datetime import datetime

from django import template
from django.utils import timezone
from django.utils.html import format_html

from console.templatetags.console_tags import MINUS, seconds, unknown

register = template.Library()
DAY_S = 86_400


@register.filter
def lasting(value: float | None) -> str:
    """0.0042 -> 4.2 ms, 250 -> 4 min 10 s, 604800 -> 7 d, -3 -> −3 s."""
    if value is None:
        return unknown()
    if value < 0:
        return f"{MINUS}{lasting(-value)}"
    if value == 0:
        return "0 s"
    if value < 1:
        return f"{1000 * value:.2g} ms" if value < 0.01 else f"{1000 * value:.0f} ms"
    if value < 2 * DAY_S:
        return seconds(value)
    days, rest = divmod(round(value / 3600), 24)
    return f"{days} d {rest} h" if rest else f"{days} d"


@register.filter
def ahead(value: datetime | None) -> str:
    """in 6 d 23 h, with the exact time in the title; a moment that has passed is said to be due."""
    if value is None:
        return unknown("never")
    left = (value - timezone.now()).total_seconds()
    here = value.astimezone(timezone.get_current_timezone())
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        here.isoformat(timespec="seconds"),
        f"{here:%Y-%m-%d %H:%M:%S} {timezone.get_current_timezone_name()}",
        f"in {lasting(left)}" if left > 0 else "due now",
    )
