"""The review page: the queue, one item of it, the same item alone, and how well reviewers agree."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from console import stale_forms
from console.access import MemberRequest, carry_out, member_required
from console.reads import flagged as flags
from console.reads import review as reads
from console.reads.review_quality import quality
from console.stale_forms import Outdated
from console.timerange import TimeRange
from evals.services.drafts import close_draft
from feedback.services import review_queue
from registry.errors import InvalidInput, NotFound
from registry.models import Role
from registry.project_settings import ProjectSettings
from registry.services import change_project_settings, locked_settings, project_settings
from rl_online.services.problems_from_turns import NAME as DRAFT

SAMPLE_DAYS = {"1": 1, "7": 7, "30": 30}
HOW = {  # settings that reviews have a form for -> what they are called
    "review_instructions": "Instructions for reviewers",
    "review_responses": "People who must answer",
}
CHOICES = (  # value of the form, title, key
    ("fine", "Fine as it is", "1"),
    ("excluded", "Not for training", "2"),
    ("-1", "Reward \u22121", "3"),
    ("-0.5", "Reward \u22120.5", "4"),
    ("0", "Reward 0", "5"),
    ("0.5", "Reward +0.5", "6"),
    ("1", "Reward +1", "7"),
)


@require_safe
@member_required()
def review(request: MemberRequest) -> HttpResponse:
    """The queue before an item is taken."""
    scope, reviewer = reads.Scope.of(request.GET), request.user.get_username()
    queue, settings = reads.queue(scope, reviewer), project_settings(request.member.project_id)
    context = {
        "scope": scope,
        "queue": queue,
        "before": None,
        "after": next((row for row in queue.rows if row.is_next), None),
        "held": review_queue.held_by(reviewer),
        "settings": settings,
        **_how_form(settings),
        "has_any": queue.num_everywhere or queue.recent or flags.has_any(),
    }
    return render(request, "review/review.html", context)


@require_safe
@member_required()
def item(request: MemberRequest, flag: int) -> HttpResponse:
    return _item(request, flag, "review/item.html")


@require_safe
@member_required()
def focus(request: MemberRequest, flag: int) -> HttpResponse:
    """The same item with nothing around it: for somebody who is asked about this one."""
    return _item(request, flag, "review/focus.html")


@require_safe
@member_required()
def agreement(request: MemberRequest) -> HttpResponse:
    time_range = TimeRange.of(request, default="90d")
    context = {"time_range": time_range, "quality": quality(time_range), "by_rule": flags.by_rule(time_range)}
    return render(request, "review/agreement.html", context)


@require_POST
@member_required(Role.REVIEWER)
def sample(request: MemberRequest) -> HttpResponse:
    """Queue turns that no rule flagged."""
    back = reverse("console:review", args=[request.member.project.slug])

    def act() -> str:
        number, days = request.POST.get("number", ""), request.POST.get("days", "")
        if days not in SAMPLE_DAYS:
            raise InvalidInput(f"choose one of {', '.join(SAMPLE_DAYS)}", field="days")
        if not (number.isascii() and number.isdigit() and len(number) < 5):
            raise InvalidInput(f"found {number[:20]!r}; give a whole number", field="number")
        since = timezone.now() - timedelta(days=SAMPLE_DAYS[days])
        drawn = review_queue.queue_sample(int(number), since=since, raised_by=request.user.get_username())
        return f"{drawn} unflagged turns are in the queue." if drawn else "No settled turn without a flag in that time."

    return carry_out(request, act, back=back)


@require_POST
@member_required(Role.ENGINEER)
def change_settings(request: MemberRequest) -> HttpResponse:
    """What reviewers read beside every item, and how many of them must answer."""
    project, back = request.member.project, reverse("console:review", args=[request.member.project.slug])
    try:
        with transaction.atomic():
            stale_forms.check(request.POST, _how(locked_settings(project)), HOW)
            number = request.POST.get("review_responses", "")
            if not (number.isascii() and number.isdigit() and len(number) < 3):
                raise InvalidInput(f"found {number[:20]!r}; give a whole number", field="review_responses")
            change_project_settings(
                project,
                actor=request.user.get_username(),
                review_responses=int(number),
                review_instructions=request.POST.get("review_instructions", "").replace("\r\n", "\n").strip(),
            )
    except (InvalidInput, Outdated) as error:
        return stale_forms.refused(
            request,
            error,
            form="review/_how.html",
            title="How reviews are done here",
            back=back,
            saved=stale_forms.last_save("project settings", project.slug),
            **_how_form(project_settings(project.id), request.POST),
        )
    messages.success(request, "Saved. Reviewers see it with their next item.")
    return redirect(back)


@require_POST
@member_required(Role.ENGINEER)
def close_problems(request: MemberRequest) -> HttpResponse:
    """Freeze a benchmark draft that reviewers fill."""
    back = reverse("console:review", args=[request.member.project.slug])
    actor = request.user.get_username()
    name = request.POST.get("name", "").strip() or DRAFT
    return carry_out(request, lambda: f"{close_draft(name, actor=actor)} is closed and can be run.", back=back)


def _how(settings: ProjectSettings) -> dict[str, Any]:
    return {"review_instructions": settings.review_instructions, "review_responses": int(settings.review_responses)}


def _how_form(settings: ProjectSettings, sent: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Filled with what was sent, else with what is."""
    now = _how(settings)
    return {"how": now if sent is None else {name: sent.get(name, "") for name in HOW}, "seen": stale_forms.seen(now)}


def _item(request: MemberRequest, flag: int, template: str) -> HttpResponse:
    """A page that says what to do also where the item is gone."""
    scope, reviewer = reads.Scope.of(request.GET), request.user.get_username()
    settings = project_settings(request.member.project_id)
    try:
        item = reads.item(flag, reviewer, settings.review_instructions)
    except NotFound:
        return render(request, "review/gone.html", {"flag_id": flag, "scope": scope}, status=404)
    queue = reads.queue(scope, reviewer)
    before, after = reads.place(queue.rows, flag)
    context = {
        "scope": scope,
        "queue": queue,
        "item": item,
        "flag": item.flag,
        "turn": item.flag.turn,
        "judged": item.exchanges[-1],
        "earlier": item.exchanges[:-1],
        "before": before,
        "after": after,
        "choices": CHOICES,
        "heartbeat_s": review_queue.HEARTBEAT_S,
        "settings": settings,
        "share_url": request.build_absolute_uri(
            reverse("console:review-focus", args=[request.member.project.slug, flag])
        ),
    }
    return render(request, template, context)
