"""What calls for a person: the alarms that stand, those that are over, and the rules behind them."""

from typing import Any

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console.access import MemberRequest, carry_out, member_required
from console.listing import Found, show_list
from console.lists.alarms import ALARMS
from console.reads.overview import standing_alarms
from registry.models import Role
from rl_online.alarms import Rule
from rl_online.services import alarms as services


@require_safe
@member_required()
def alerts(request: MemberRequest) -> HttpResponse:
    def context(found: Found) -> dict[str, Any]:
        return {"standing": standing_alarms(), "rules": list(Rule)}

    return show_list(request, ALARMS, context=context, template="alerts/alerts.html")


@require_POST
@member_required(Role.ENGINEER)
def acknowledge(request: MemberRequest, alarm: int) -> HttpResponse:
    def act() -> str:
        found = services.acknowledge(alarm, actor=request.user.get_username(), note=request.POST.get("note", ""))
        return f"You look after: {found.title}."

    return carry_out(request, act, back=_back(request))


@require_POST
@member_required(Role.ENGINEER)
def close(request: MemberRequest, alarm: int) -> HttpResponse:
    def act() -> str:
        found = services.close(alarm, actor=request.user.get_username(), note=request.POST.get("note", ""))
        return f"Closed: {found.title}."

    return carry_out(request, act, back=_back(request))


def _back(request: MemberRequest) -> str:
    return reverse("console:alerts", args=[request.member.project.slug])
