"""One session: its transcript by windows, and what was heard about it."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.access import MemberRequest, member_required
from console.charts.timeline import SAYS, Heard, Moment, timeline
from console.reads import session as reads
from console.reads.moves import marks, moves
from console.reads.turn_views import SignalView
from console.templatetags.model_text import plain
from feedback.models import UserSignal
from registry.errors import InvalidInput, NotFound

WHOLE = "whole session"
MAX_LANE = 24  # characters of a lane's name


@require_safe
@member_required()
def session(request: MemberRequest, session: str) -> HttpResponse:
    """`?turn=<id>` shows the window around that turn."""
    found = reads.find_session(session, sought=request.GET.get("turn", "").replace("\x00", "") or None)
    return render(
        request,
        "sessions/session.html",
        {"view": found, "window": found.window, "figure": _figure(request, found)},
    )


@require_safe
@member_required()
def turns(request: MemberRequest, session: str) -> HttpResponse:
    """The window before or after a place: a fragment for the transcript, without the page around it."""
    before, after = request.GET.get("before"), request.GET.get("after")
    try:
        place = reads.Place.parse((before or after or reads.START).replace("\x00", ""))
    except InvalidInput as error:
        raise NotFound(error.message) from error
    window = reads.more_turns(session, place, "before" if before else "after")
    return render(
        request,
        "sessions/_window.html",
        {"window": window, "session_id": session, "is_before": bool(before), "is_after": not before},
    )


def hover(signal: UserSignal) -> str:
    """Plotly's hover knows some HTML, so nothing a user wrote goes in but the signal's kind and number."""
    kind = lane(signal)
    return kind if signal.value is None else f"{kind} {signal.value:g}"


def says(view: SignalView) -> str:
    if view.is_superseded:
        return "superseded"
    return view.says.outcome if view.says and view.says.outcome in SAYS else ""


def lane(signal: UserSignal) -> str:
    kind = plain(signal.kind).replace("<", "‹")
    return kind if len(kind) <= MAX_LANE else f"{kind[: MAX_LANE - 1]}…"


def _figure(request: MemberRequest, found: reads.SessionView) -> dict[str, Any] | None:
    """Signals about the window's turns, each leading to its turn, and those about the whole session."""
    slug = request.member.project.slug
    points = [
        Heard(
            at=timezone.localtime(view.signal.at),
            kind=lane(view.signal),
            says=says(view),
            text=f"{hover(view.signal)}, turn {one.turn.index}",
            url=reverse("console:turn", args=[slug, one.turn.turn_id]),
        )
        for one in found.window.turns
        for view in one.signals
    ]
    points += [
        Heard(at=timezone.localtime(signal.at), kind=WHOLE, says="", text=f"{hover(signal)}, about the whole session")
        for signal in found.signals
    ]
    times = [view.signal.at for one in found.window.turns for view in one.signals] + [one.at for one in found.signals]
    return timeline(
        sorted(points, key=lambda point: point.at), moments=moments_between(sorted(times), timezone.localtime)
    )


def moments_between(times: Sequence[datetime], place: Callable[[datetime], datetime | float]) -> list[Moment]:
    """What changed what serves or what counts between the first and the last of these times, at their `place`."""
    if not times:
        return []
    return [
        Moment(at=place(mark.at), text=mark.text)
        for mark in marks(moves(times[0], times[-1]), times, timezone.localtime)
    ]
