"""Flagged turns: looking at them and saying what shall become of them."""

import json

from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console.access import MemberRequest, carry_out, member_required
from console.reads import flagged as reads
from feedback.models import Flag, FlagResolution, FlagState
from feedback.services.review import resolve_flag
from registry.errors import InvalidInput, StropError
from registry.models import Role

SAID = {
    FlagResolution.FINE: "Marked as fine.",
    FlagResolution.EXCLUDED: "The turn is out of training.",
    FlagResolution.OVERRIDDEN: "Your reward is used instead of the recipe's.",
}


@require_safe
@member_required()
def flagged(request: MemberRequest) -> HttpResponse:
    state = request.GET.get("state", FlagState.OPEN)
    state = state if state in (*FlagState.values, "all") else FlagState.OPEN
    rule = request.GET.get("rule", "")
    page, rows = reads.page_of_flags(state, rule, request.GET.get("page"))
    return render(
        request,
        "flagged/flagged.html",
        {
            "state_shown": state,
            "states": [*FlagState.values, "all"],
            "rule": rule,
            "rules": reads.rules(),
            "page": page,
            "rows": rows,
            "num_ever": reads.num_ever(),
        },
    )


@require_POST
@member_required(Role.REVIEWER)
def resolve(request: MemberRequest, flag: int) -> HttpResponse:
    """With htmx the row is answered again as it now is, else the page."""
    row = reads.find_flag(flag)
    if request.htmx:
        return _resolve_in_place(request, row.flag)
    back = f"{reverse('console:flagged', args=[request.member.project.slug])}?state={row.flag.state}"
    return carry_out(request, lambda: _resolve(request, row.flag), back=back)


def _resolve_in_place(request: MemberRequest, flag: Flag) -> HttpResponse:
    try:
        with transaction.atomic():
            said, level = _resolve(request, flag), "success"
    except StropError as error:
        said, level = f"{error.field}: {error.message}" if error.field else error.message, "error"
    response = render(request, "flagged/_flag.html", {"row": reads.find_flag(flag.pk)})
    response["HX-Trigger"] = json.dumps({"strop:toast": {"text": said, "level": level}})
    return response


def _resolve(request: MemberRequest, flag: Flag) -> str:
    try:
        resolution = FlagResolution(request.POST.get("resolution", ""))
    except ValueError as error:
        raise InvalidInput(f"choose one of {', '.join(FlagResolution.values)}", field="resolution") from error
    override = _reward(request) if resolution is FlagResolution.OVERRIDDEN else None
    resolve_flag(
        flag,
        resolution=resolution,
        reward_override=override,
        note=request.POST.get("note", "").strip(),
        reviewer=request.user.get_username(),
    )
    return SAID[resolution]


def _reward(request: MemberRequest) -> float:
    text = request.POST.get("reward", "").strip()
    try:
        return float(text)
    except ValueError as error:
        raise InvalidInput(f"found {text!r}; give the reward as a number, e.g. −0.5", field="reward") from error
