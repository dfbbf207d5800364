"""What is done with the rows of a list that were ticked."""

from collections.abc import Sequence

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_POST

from console.access import MemberRequest, carry_out, member_required, said
from console.listing import tidy
from feedback.models import Turn
from feedback.services.review_queue import raise_flag
from registry.errors import Conflict, InvalidInput, NotFound
from registry.models import Role

MOST = 200  # rows at once


@require_POST
@member_required(Role.REVIEWER)
def flag(request: MemberRequest) -> HttpResponse:
    """Flag the ticked turns, or the newest turn of each ticked session, for review."""
    slug = request.member.project.slug
    of = request.POST.get("list", "turns")
    if of not in ("turns", "sessions"):
        raise NotFound(f"no list {of[:60]!r}")
    ticked = list(dict.fromkeys(request.POST.getlist("pick")))
    reason, actor = request.POST.get("reason", ""), request.user.get_username()

    def act() -> str:
        if not 1 <= len(ticked) <= MOST:
            raise InvalidInput(f"{len(ticked)} rows are ticked; tick 1 to {MOST}")
        turns = ticked if of == "turns" else _newest_turns(ticked)
        num_new = _raise(turns, reason, actor)
        others = f", {len(turns) - num_new} waited already or are gone" if num_new < len(turns) else ""
        sentence = f"{num_new} flagged for review{others}."
        return said(sentence, link="See them", url=reverse("console:flagged", args=[slug]))

    back = reverse(f"console:{of}", args=[slug])
    return carry_out(request, act, back=f"{back}?{tidy(request.POST.get('query', ''))}")


def _raise(turns: Sequence[str], reason: str, actor: str) -> int:
    """How many are new: not flagged by hand before, not deleted since the list was drawn."""
    num_new = 0
    for turn in turns:
        try:
            raise_flag(turn, reason=reason, raised_by=actor)
            num_new += 1
        except (Conflict, NotFound):
            continue
    return num_new


def _newest_turns(sessions: Sequence[str]) -> list[str]:
    """One of each session that has any."""
    turns = Turn.objects.filter(session__session_id__in=sessions).order_by("session_id", "-index", "-at", "-id")
    return list(turns.distinct("session_id").values_list("turn_id", flat=True))
