"""A settings form that one person fills in while another saves: nothing newer is overwritten unseen.

    {"seen": seen(values)}                          # for the page: a hidden input "seen" in the form
    with transaction.atomic():
        check(request.POST, values, titles)         # raises Outdated; `values` read under the lock of what is changed
        change(...)

On Outdated the form is shown again with what was sent and partials/outdated.html, which names every newer value; it
carries those as seen, so saving once more is meant.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from registry.errors import Conflict, InvalidInput, StropError
from registry.models import AuditEvent

FIELD = "seen"


@dataclass(frozen=True, kw_only=True, slots=True)
class Newer:
    """One value that changed after the form was opened."""

    title: str
    before: str  # as the form was filled
    now: str


class Outdated(Conflict):
    """The form was filled from older values; `newer` are those that changed."""

    def __init__(self, newer: list[Newer]) -> None:
        super().__init__("these settings were changed after you opened the form; nothing was saved")
        self.newer = newer


def seen(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True)


def check(sent: Mapping[str, str], values: Mapping[str, Any], titles: Mapping[str, str]) -> None:
    """Raises Outdated, and InvalidInput for a form that does not say what it was filled from."""
    try:
        before = json.loads(sent.get(FIELD, ""))
    except ValueError:
        before = None
    if not isinstance(before, dict):
        raise InvalidInput("this form does not say what it was filled from; open the page again")
    newer = [
        Newer(title=titles.get(name, name), before=_written(before.get(name)), now=_written(value))
        for name, value in json.loads(seen(values)).items()
        if before.get(name) != value
    ]
    if newer:
        raise Outdated(newer)


def said(error: StropError | None, saved: AuditEvent | None) -> dict[str, Any]:
    """For a page: `outdated` with who `saved` last, or the `refusal` of what was wrong."""
    return {"outdated": error, "saved": saved} if isinstance(error, Outdated) else {"refusal": error}


def last_save(object_kind: str, object_id: str) -> AuditEvent | None:
    """Inside a tenant."""
    return AuditEvent.objects.filter(object_kind=object_kind, object_id=object_id).order_by("-at", "-id").first()


def refused(
    request: HttpRequest,
    error: StropError,
    *,
    form: str,
    title: str,
    back: str,
    saved: AuditEvent | None,
    **context: Any,
) -> HttpResponse:
    """A page with nothing but the form (a template) as it was sent and why it was not saved."""
    context |= {"form": form, "title": title, "back": back, "reload": back} | said(error, saved)
    return render(request, "settings/refused.html", context, status=error.status)


def _written(value: Any) -> str:
    if value is None or value == "" or value == []:
        return "nothing"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        return f"{value:.12g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
