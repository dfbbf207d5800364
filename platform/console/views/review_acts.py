"""What a reviewer does on the review page: take an item, answer it, skip it, take an answer back."""

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse, JsonResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from console.access import MemberRequest, carry_out, member_required
from console.reads.review import Scope
from feedback.models import Flag, FlagResolution
from feedback.services import review, review_queue
from feedback.services.review import Answer
from registry.errors import Conflict, Forbidden, InvalidInput, NotFound, StropError
from registry.models import Role
from rl_online.services.problems_from_turns import NAME, Added
from rl_online.services.reviewing import Answered, answer_review, undo_review

OTHER = "other"  # of the form's choices: the reward is typed


@require_POST
@member_required(Role.REVIEWER)
def take_next(request: MemberRequest) -> HttpResponse:
    """Go on with what this person has, else with the next free item."""
    scope, reviewer = Scope.of(request.POST), request.user.get_username()
    flag = review_queue.held_by(reviewer) or review_queue.hold_next(reviewer=reviewer, narrowed=scope.narrowed)
    return redirect(_page_of(request, flag, scope))


@require_POST
@member_required(Role.REVIEWER)
def answer(request: MemberRequest, flag: int) -> HttpResponse:
    """Keep the answer and go on: to the next item, or to this one when auto-advance is off."""
    scope, reviewer = Scope.of(request.POST), request.user.get_username()
    here = _item(request, flag, scope)
    try:
        with transaction.atomic():
            given = answer_of(request.POST)
            is_problem = request.POST.get("problem") == "on"
            benchmark = request.POST.get("benchmark", "").strip() or NAME
            answered = answer_review(flag, given, reviewer=reviewer, is_problem=is_problem, benchmark=benchmark)
    except (NotFound, Forbidden):
        raise
    except StropError as error:
        messages.error(request, f"{error.field}: {error.message}" if error.field else error.message)
        return redirect(here)
    messages.success(request, sentence(answered))
    if request.POST.get("advance") != "on":
        return redirect(here)
    following = review_queue.hold_next(reviewer=reviewer, narrowed=scope.narrowed)
    return redirect(_page_of(request, following, scope))


@require_POST
@member_required(Role.REVIEWER)
def skip(request: MemberRequest, flag: int) -> HttpResponse:
    scope, reviewer = Scope.of(request.POST), request.user.get_username()
    review_queue.skip(flag, reviewer=reviewer)
    following = review_queue.hold_next(reviewer=reviewer, narrowed=scope.narrowed)
    return redirect(_page_of(request, following, scope))


@require_POST
@member_required(Role.REVIEWER)
def undo(request: MemberRequest) -> HttpResponse:
    """Take back the answer to the item that is shown, else this person's last one, and open it."""
    scope, reviewer = Scope.of(request.POST), request.user.get_username()
    asked = request.POST.get("flag", "")
    last = None if asked.isdigit() and len(asked) < 19 else review.last_answered(reviewer)
    flag_id = last.flag_id if last else int(asked) if asked.isdigit() and len(asked) < 19 else None

    def act() -> str:
        if flag_id is None:
            raise Conflict("you have no answer to take back")
        undo_review(flag_id, reviewer=reviewer)
        review_queue.hold(flag_id, reviewer=reviewer, is_opening=True)
        return "Your answer is taken back, and what it did with it."

    queue = reverse("console:review", args=[request.member.project.slug]) + scope.query
    return carry_out(request, act, back=queue if flag_id is None else _item(request, flag_id, scope))


@require_POST
@member_required(Role.REVIEWER)
def look_again(request: MemberRequest) -> HttpResponse:
    """Put what this person skipped back into their queue."""
    back = reverse("console:review", args=[request.member.project.slug])
    reviewer = request.user.get_username()

    def act() -> str:
        return f"{review_queue.look_again(reviewer=reviewer)} skipped turns are back in your queue."

    return carry_out(request, act, back=back)


@require_POST
@member_required(Role.REVIEWER)
def hold(request: MemberRequest, flag: int) -> HttpResponse:
    """Opened, or a heartbeat: whether the item is this person's, and who else has it."""
    held = review_queue.hold(
        flag, reviewer=request.user.get_username(), is_opening=request.POST.get("opening") == "yes"
    )
    return JsonResponse({"is_mine": held.is_mine, "others": held.others})


@require_POST
@member_required(Role.REVIEWER)
def draft(request: MemberRequest, flag: int) -> HttpResponse:
    """Keep the form as it is."""
    body = {name: request.POST.get(name, "") for name in review_queue.FIELDS}
    try:
        review_queue.save_draft(flag, {k: v for k, v in body.items() if v}, reviewer=request.user.get_username())
    except InvalidInput as error:
        return JsonResponse({"error": error.message}, status=400)
    return JsonResponse({})


def answer_of(form: QueryDict) -> Answer:
    """The form's fields as an answer. Raises InvalidInput naming the field."""
    choice = form.get("choice", "")
    reward = form.get("reward", "").strip() if choice == OTHER else choice
    is_reward = choice not in (FlagResolution.FINE, FlagResolution.EXCLUDED)
    if not choice:
        raise InvalidInput("choose what shall become of the turn", field="choice")
    return Answer(
        resolution=FlagResolution.OVERRIDDEN if is_reward else choice,
        reward=_number(reward) if is_reward else None,
        gold=form.get("gold") or None,
        note=form.get("note", "").strip(),
    )


def sentence(answered: Answered) -> str:
    """What an answer did."""
    receipt = answered.receipt
    if receipt.is_late:
        return "Kept beside the decision: this was settled before."
    if receipt.num_missing:
        return f"Kept. {receipt.num_missing} more {'person' if receipt.num_missing == 1 else 'people'} must answer."
    settled = receipt.flags[0]
    parts = [
        {
            FlagResolution.FINE: "Marked as fine.",
            FlagResolution.EXCLUDED: "The turn is out of training.",
            FlagResolution.OVERRIDDEN: f"The reward {settled.reward_override} is used instead of the recipe's.",
        }[FlagResolution(settled.resolution)]
    ]
    if answered.is_correction:
        parts.append("It was learnt from already, so the next batch teaches the difference.")
    if answered.added:
        parts.append(sentence_of(answered.added))
    return " ".join(parts)


def sentence_of(added: Added) -> str:
    """What became of a turn that was to be a problem."""
    was = "Added to" if added.is_new else "The same question is already in"
    parts = [f"{was} {added.problem.benchmark}."]
    if added.problem.slices.get("learnt") == "yes":
        parts.append("Training has seen it, which its page says.")
    if added.neighbour is not None:
        parts.append(f"{added.share:.0%} of it stands in {added.neighbour}: the two are one family.")
    return " ".join(parts)


def _number(text: str) -> float:
    try:
        return float(text.replace("\u2212", "-"))
    except ValueError:
        raise InvalidInput(f"found {text[:40]!r}; give a number from -1 to 1, e.g. -0.5", field="reward") from None


def _item(request: MemberRequest, flag_id: int, scope: Scope) -> str:
    name = "console:review-focus" if request.POST.get("focus") == "yes" else "console:review-item"
    return reverse(name, args=[request.member.project.slug, flag_id]) + scope.query


def _page_of(request: MemberRequest, flag: Flag | None, scope: Scope) -> str:
    if flag is None:
        return reverse("console:review", args=[request.member.project.slug]) + scope.query
    return reverse("console:review-item", args=[request.member.project.slug, flag.pk]) + scope.query
