"""The list of flagged turns with how each rule does, and what is decided about many of them at once."""

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console.access import MemberRequest, carry_out, member_required
from console.listing import show_list, tidy
from console.lists import flags as flag_list
from console.reads import flagged as reads
from console.views.review_acts import answer_of
from feedback.models import FlagState
from feedback.services.review_queue import raise_flag
from registry.errors import InvalidInput
from registry.models import Role
from rl_online.services.reviewing import MAX_AT_ONCE, answer_many

SHOWN_FIRST = {"q": f"state:{FlagState.OPEN}"}  # until the reader asks for something else
SAID = {
    "fine": "{n} marked as fine.",
    "excluded": "{n} taken out of training.",
    "overridden": "{n} given your reward.",
}


@require_safe
@member_required()
def flagged(request: MemberRequest) -> HttpResponse:
    kind = flag_list.FLAGS
    asks = "q" in request.GET or any(one.name in request.GET for one in kind.fields)
    if not asks:
        request.GET = request.GET.copy()
        request.GET.update(SHOWN_FIRST)
    asked = kind.asked(request)
    return show_list(
        request,
        kind,
        context=lambda found: {} if request.htmx else {"by_rule": reads.by_rule(asked.time_range)},
        template="flagged/flagged.html",
    )


@require_POST
@member_required(Role.REVIEWER)
def resolve(request: MemberRequest) -> HttpResponse:
    """One answer for every ticked flag."""
    ticked = [
        int(text) for text in request.POST.getlist("pick") if text.isascii() and text.isdigit() and len(text) < 19
    ]
    back = reverse("console:flagged", args=[request.member.project.slug])

    def act() -> str:
        if not 1 <= len(ticked) <= MAX_AT_ONCE:
            raise InvalidInput(f"{len(ticked)} flags are ticked; tick 1 to {MAX_AT_ONCE}")
        answer = answer_of(request.POST)
        kept, passed = answer_many(ticked, answer, reviewer=request.user.get_username())
        passed_over = f" {passed} were settled, gone or answered by you already." if passed else ""
        return SAID[answer.resolution].format(n=kept) + passed_over

    return carry_out(request, act, back=f"{back}?{tidy(request.POST.get('query', ''))}")


@require_POST
@member_required(Role.REVIEWER)
def raise_by_hand(request: MemberRequest, turn: str) -> HttpResponse:
    """Somebody should look at this turn."""
    slug = request.member.project.slug

    def act() -> str:
        raise_flag(turn, reason=request.POST.get("reason", ""), raised_by=request.user.get_username())
        return "Flagged; it waits for review."

    return carry_out(request, act, back=back_to(request, reverse("console:flagged", args=[slug])))


def back_to(request: MemberRequest, otherwise: str) -> str:
    """The page of this site the form stood on, as the form says; never another site."""
    wanted = request.POST.get("back", "")
    is_ours = wanted.startswith("/") and not wanted.startswith(("//", "/\\")) and "\n" not in wanted
    return wanted if is_ours else otherwise
