"""One turn: its page, and its tokens, which are asked for apart because the engine has to say what they are."""

from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console.access import MemberRequest, carry_out, member_required
from console.charts.timeline import Heard, Moment, timeline
from console.reads import tokens as token_reads
from console.reads import turn as reads
from console.views.review_acts import sentence_of
from console.views.session import WHOLE, hover, lane, moments_between, says
from registry.models import Role
from rl_online.services.problems_from_turns import NAME
from rl_online.services.reviewing import pick_problem


@require_safe
@member_required()
def turn(request: MemberRequest, turn: str) -> HttpResponse:
    page = reads.find_turn(turn)
    return render(
        request, "turns/turn.html", {"page": page, "one": page.view, "figure": _figure(page), "benchmark": NAME}
    )


@require_POST
@member_required(Role.REVIEWER)
def add_problem(request: MemberRequest, turn: str) -> HttpResponse:
    """It becomes a problem of a benchmark, and is no longer trained on."""
    benchmark = request.POST.get("benchmark", "").strip() or NAME

    def act() -> str:
        answered = pick_problem(turn, reviewer=request.user.get_username(), benchmark=benchmark)
        assert answered.added is not None
        return f"{sentence_of(answered.added)} The turn is out of training; undo it in Review."

    return carry_out(request, act, back=reverse("console:turn", args=[request.member.project.slug, turn]))


@require_safe
@member_required()
def tokens(request: MemberRequest, turn: str) -> HttpResponse:
    return render(request, "turns/_tokens.html", {"view": token_reads.tokens_of(turn)})


def _figure(page: reads.TurnPage) -> dict[str, Any] | None:
    """Both levels of feedback on one line of time, which starts with the answer."""
    turn = page.view.turn
    points = [
        Heard(
            at=(view.signal.at - turn.at).total_seconds(),
            kind=lane(view.signal),
            says=says(view),
            text=hover(view.signal),
        )
        for view in page.view.signals
    ]
    points += [
        Heard(
            at=(signal.at - turn.at).total_seconds(),
            kind=WHOLE,
            says="",
            text=f"{hover(signal)}, about the whole session",
        )
        for signal in page.session_signals
    ]
    moments = [Moment(at=0.0, text="answer")]
    if turn.settled_at is not None:
        moments.append(Moment(at=(turn.settled_at - turn.at).total_seconds(), text="settled"))
    times = sorted(
        {turn.at, *(view.signal.at for view in page.view.signals), *(one.at for one in page.session_signals)}
    )
    moments += moments_between(times, lambda at: (at - turn.at).total_seconds())
    return timeline(points, moments=moments)
