"""How numbers, times, ids and charts are written on every page. What is not known is said, never written as 0."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django import template
from django.template import Context
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from console.charts.colours import CHECKPOINT_COLOURS
from console.listing import PASSING
from console.reads.objects import turn_address
from feedback.models import Turn
from rl_online.models import UpdateRun

register = template.Library()

MINUS = "\u2212"


def unknown(words: str = "no data") -> SafeString:
    return format_html('<span class="unknown">{}</span>', words)


@register.filter
def number(value: float | None) -> str:
    """Three significant digits: 1234567 -> 1,230,000; 0.000012345 -> 1.23e-05."""
    if value is None:
        return unknown()
    if value == 0:
        return "0"
    text = f"{float(f'{value:.3g}'):,.10g}" if 1e-4 <= abs(value) < 1e15 else f"{value:.3g}"
    return text.replace("-", MINUS) if value < 0 else text


@register.filter
def plain_number(value: float) -> str:
    """For an input: 120.0 -> 120, 0.5 -> 0.5."""
    return f"{value:.12g}"


@register.filter
def count(value: int | None) -> str:
    return unknown() if value is None else f"{value:,}"


@register.filter
def signed(value: float | None) -> str:
    """+0.75, −0.25, 0."""
    if value is None:
        return unknown()
    return f"{value:+.3g}".replace("-", MINUS) if value else "0"


@register.filter
def share(value: float | None) -> str:
    """.3842 -> 38.4 %."""
    return unknown() if value is None else f"{100 * value:.1f} %"


@register.filter
def points(value: float | None) -> str:
    """A difference of shares: -.031 -> −3.1."""
    return unknown() if value is None else f"{100 * value:+.1f}".replace("-", MINUS)


@register.filter
def seconds(value: float | None) -> str:
    """3.25 -> 3.3 s, 250 -> 4 min 10 s, 7260 -> 2 h 1 min."""
    if value is None:
        return unknown()
    if value < 60:
        return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


@register.filter
def milliseconds(value: float | None) -> str:
    return unknown() if value is None else f"{value:,.0f} ms"


@register.filter
def size(value: int | None) -> str:
    """Bytes: 538000000 -> 538 MB."""
    if value is None:
        return unknown()
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} TB"


@register.filter
def ago(value: datetime | None) -> str:
    """Relative, with the exact time in the title; the page's clock keeps it current."""
    if value is None:
        return unknown("never")
    here = value.astimezone(timezone.get_current_timezone())
    return format_html(
        '<time datetime="{}" title="{}" data-ago>{}</time>',
        here.isoformat(timespec="milliseconds"),
        here.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " " + timezone.get_current_timezone_name(),
        _ago(timezone.now() - value),
    )


def _ago(passed: timedelta) -> str:
    total = passed.total_seconds()
    if total < 0:
        return "just now" if total > -5 else "in the future"
    for limit, size_s, unit in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h")):
        if total < limit:
            return f"{int(total // size_s)} {unit} ago"
    return f"{int(total // 86400)} d ago"


@register.filter
def after(value: datetime, start: datetime) -> str:
    """How long after `start`: +1.2 s."""
    passed = (value - start).total_seconds()
    return f"+{seconds(passed)}" if passed >= 0 else f"{MINUS}{seconds(-passed)}"


@register.filter
def words(value: str | None) -> str:
    """A name from code for a reader: roll_back -> roll back."""
    return unknown() if value is None else str(value).replace("_", " ")


@register.inclusion_tag("partials/id.html")
def ident(value: str | UUID | None, length: int = 8) -> dict[str, Any]:
    """A short id with a button that copies the whole."""
    text = "" if value is None else str(value)
    # The end of a UUIDv7 tells two neighbours apart, its beginning is the time; of a digest any part does.
    short = text if len(text) <= length + 2 else (text[-length:] if isinstance(value, UUID) else text[:length])
    return {"text": text, "short": short, "is_cut": short != text, "is_tail": isinstance(value, UUID)}


@register.inclusion_tag("partials/state.html")
def state(value: str | None) -> dict[str, Any]:
    return {"value": value, "title": str(value).replace("_", " ")}


@register.inclusion_tag("partials/figure.html")
def figure(name: str, data: dict[str, Any] | None, label: str, height: int = 220) -> dict[str, Any]:
    """A chart drawn by charts.js from a figure made in charts.py; `label` says in words what it shows."""
    return {"name": name, "data": data, "label": label, "size": "tall" if height > 260 else "normal"}


@register.inclusion_tag("partials/explain.html")
def explain(
    formula: str, *, n: int | None = None, source: str = "", of: str = "", version: object = ""
) -> dict[str, Any]:
    """A small "i" after a number that says how it came about.

    {% explain "settled turns accepted / settled turns shown" n=share.turns of="turns" source=url version="recipe 3" %}
    `formula`: in words; `n`: how many `of` what it rests on, None: not said; `source`: address of the rows it was
    counted from; `version`: of the recipe, spec, judge or price card that was in force.
    """
    return {"formula": formula, "n": n, "of": of, "source": source, "version": str(version or "")}


@register.simple_tag(takes_context=True)
def turn_url(context: Context, turn: Turn) -> str:
    return turn_address(context["project"].slug, turn)


@register.inclusion_tag("partials/kept.html")
def kept_inputs(params: Mapping[str, str], left_out: str) -> dict[str, Any]:
    """Hidden inputs for what a form's address already says, but for names in `left_out` and the place in a list."""
    names = {*left_out.split(), *PASSING}
    return {"pairs": [(name, value) for name, value in params.items() if name not in names]}


@register.simple_tag
def icon(name: str) -> str:
    """Address of a symbol of icons.svg, for `<use href>`."""
    return f"{static('console/icons.svg')}#{name}"


@register.filter
def as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)


@register.filter
def item(mapping: dict[str, Any] | None, key: str) -> Any:
    return (mapping or {}).get(key)


@register.filter
def swatch(version: int) -> int:
    """Which of the series colours a checkpoint has; the same as on every chart."""
    return version % len(CHECKPOINT_COLOURS)


@register.filter
def took(run: UpdateRun) -> str:
    """From asking for an update to its end."""
    return seconds((run.finished_at - run.created_at).total_seconds()) if run.finished_at else unknown("not over")


@register.filter
def points_size(value: float | None) -> str:
    """A size in points, without a sign: .021 -> 2.1."""
    return unknown() if value is None else f"{100 * value:.1f}"


@register.filter
def rater(key: str) -> str:
    """Who compared, in imported votes: person -> people, judge:gpt-4 -> gpt-4."""
    return "people" if key == "person" else key.removeprefix("judge:") or "a judge without a name"


@register.filter
def audit_value(value: Any) -> str:
    """`{"serving": "editor@3"}` -> serving editor@3."""
    if value is None:
        return ""
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(f"{key} {str(part)[:60]}" for key, part in value.items())
