"""Giving judges work: new versions, what they do on live traffic and may spend, anchors, and people's own labels."""

import json
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.access import MemberRequest, carry_out, member_required
from evals.judge_record import find_judge
from evals.judging.judge import STRUCTURED, TEMPLATES, Protocol
from evals.judging.rubrics import DEFAULT
from evals.judging.scripted import SCRIPTS
from evals.models import AnchorSet, JudgeVersion, Subject
from evals.services import gold
from evals.services.anchors import create_anchor_set, find_anchor_set, request_anchor_run
from evals.services.judges import change_duty, create_judge, create_panel
from registry.errors import InvalidInput, StropError
from registry.models import Role

FIELDS = ("name", "model", "endpoint", "protocol", "rubric", "scale_low", "scale_high", "max_tokens", "template")
EMPTY = {"protocol": Protocol.POINTWISE.value, "scale_low": "1", "scale_high": "5", "max_tokens": "300"}


@require_http_methods(["GET", "HEAD", "POST"])
@member_required(Role.ENGINEER)
def new(request: MemberRequest) -> HttpResponse:
    """The form; what is refused is shown again with what was wrong."""
    problem = None
    if request.method == "POST":
        try:
            with transaction.atomic():
                made = _create(request.POST, actor=request.user.get_username())
        except StropError as error:
            problem = error
        else:
            messages.success(request, f"Judge {made} is made. Run its canaries, then give it work.")
            return redirect("console:judge", request.member.project.slug, made.pk)
    context = {
        "sent": {name: request.POST.get(name, EMPTY.get(name, "")) for name in FIELDS},
        "is_structured": bool(request.POST.get(STRUCTURED)),
        "problem": problem,
        "protocols": list(Protocol),
        "scripts": [f"scripted/{name}" for name in SCRIPTS],
        "default_rubric": DEFAULT,
        "templates": {protocol.value: text for protocol, text in TEMPLATES.items()},
    }
    return render(request, "judges/new.html", context, status=problem.status if problem else 200)


def _create(sent: QueryDict, *, actor: str) -> JudgeVersion:
    sampling: dict[str, Any] = {"temperature": 0, "max_tokens": _whole(sent, "max_tokens")}
    if sent.get(STRUCTURED):
        sampling[STRUCTURED] = True
    return create_judge(
        name=sent.get("name", ""),
        model=sent.get("model", ""),
        endpoint=sent.get("endpoint", ""),
        protocol=sent.get("protocol", ""),
        rubric=sent.get("rubric", ""),
        scale_low=_number(sent, "scale_low"),
        scale_high=_number(sent, "scale_high"),
        template=sent.get("template", "").strip(),
        sampling=sampling,
        actor=actor,
    )


@require_POST
@member_required(Role.ENGINEER)
def duty(request: MemberRequest, judge: int) -> HttpResponse:
    found, sent = find_judge(judge), request.POST

    def act() -> str:
        change_duty(
            found,
            actor=request.user.get_username(),
            live=sent.get("live", ""),
            share=_number(sent, "share") / 100,
            idle_s=_whole(sent, "idle_s"),
            may_judge_itself=sent.get("may_judge_itself") == "yes",
            daily_usd=_dollars(sent, "daily_usd"),
            daily_calls=_whole(sent, "daily_calls") if sent.get("daily_calls", "").strip() else None,
        )
        return f"{found} has its work."

    return carry_out(request, act, back=_page(request, judge))


@require_safe
@member_required()
def anchors(request: MemberRequest) -> HttpResponse:
    """Sets that judges are shown again and again, and a form for another."""
    sets = AnchorSet.objects.order_by("-created_at")[:50]
    return render(request, "judges/anchors.html", {"sets": [(one, len(one.items)) for one in sets]})


@require_POST
@member_required(Role.ENGINEER)
def add_anchors(request: MemberRequest) -> HttpResponse:
    sent = request.POST

    def act() -> str:
        made = create_anchor_set(sent.get("name", ""), _items(sent.get("items", "")), actor=request.user.get_username())
        return f"{made} holds {len(made.items)} item{'' if len(made.items) == 1 else 's'}."

    return carry_out(request, act, back=reverse("console:judge-anchors", args=[request.member.project.slug]))


@require_POST
@member_required(Role.ENGINEER)
def run_anchors(request: MemberRequest, judge: int) -> HttpResponse:
    found = find_judge(judge)

    def act() -> str:
        chosen = find_anchor_set(_uuid(request.POST.get("anchors", "")))
        request_anchor_run(found, chosen, actor=request.user.get_username())
        return f"{found} is shown {chosen}; what it says stands here in a moment."

    return carry_out(request, act, back=_page(request, judge))


@require_POST
@member_required(Role.ENGINEER)
def add_panel(request: MemberRequest) -> HttpResponse:
    sent = request.POST

    def act() -> str:
        chosen = [int(key) for key in sent.getlist("judges") if key.isascii() and key.isdigit() and len(key) < 10]
        made = create_panel(
            sent.get("name", ""), chosen, actor=request.user.get_username(), quorum=_whole(sent, "quorum"),
            max_spread=_number(sent, "max_spread"),
        )  # fmt: skip
        return f"Panel {made} speaks once all its judges have marked a turn."

    return carry_out(request, act, back=reverse("console:judges", args=[request.member.project.slug]))


@require_safe
@member_required()
def rating(request: MemberRequest, rating: UUID) -> HttpResponse:
    """What a judge said about one turn or session, and what people say."""
    found = gold.find_rating(rating)
    context = {"rating": found, "labels": gold.labels_of(found), "is_turn": found.subject == Subject.TURN}
    return render(request, "judges/rating.html", context)


@require_POST
@member_required(Role.REVIEWER)
def label(request: MemberRequest, rating: UUID) -> HttpResponse:
    found = gold.find_rating(rating)

    def act() -> str:
        gold.label(found, _number(request.POST, "value"), by=request.user.get_username())
        return f"Your label of {found.subject} {found.subject_ref} is kept; its judges are held against it."

    back = reverse("console:judge-rating", args=[request.member.project.slug, found.pk])
    return carry_out(request, act, back=back)


def _page(request: MemberRequest, judge: int) -> str:
    return reverse("console:judge", args=[request.member.project.slug, judge])


def _items(text: str) -> list[Any]:
    """One JSON object a line. Raises InvalidInput with the line."""
    items = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            items.append(json.loads(line))
        except (ValueError, RecursionError):
            raise InvalidInput(f"line {number} is not JSON", field="items") from None
    return items


def _number(sent: QueryDict, field: str) -> float:
    try:
        return float(sent.get(field, ""))
    except ValueError:
        raise InvalidInput(f"found {sent.get(field, '')[:40]!r}; write a number", field=field) from None


def _whole(sent: QueryDict, field: str) -> int:
    text = sent.get(field, "").strip()
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidInput(f"found {text[:40]!r}; write a whole number", field=field)
    return int(text)


def _dollars(sent: QueryDict, field: str) -> Decimal | None:
    text = sent.get(field, "").strip()
    try:
        return Decimal(text) if text else None
    except InvalidOperation:
        raise InvalidInput(f"found {text[:40]!r}; write dollars", field=field) from None


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise InvalidInput("choose an anchor set", field="anchors") from None
