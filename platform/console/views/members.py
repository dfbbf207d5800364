"""Settings -> Members: inviting by sign-in link, roles, removal."""

from collections.abc import Callable

from django.conf import settings
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from console.access import MemberRequest, carry_out, member_required
from registry import members as service
from registry.errors import NotFound, StropError
from registry.models import Role

ROLES = (
    (Role.OWNER, "everything, also members, keys with scope admin, settings and reset"),
    (Role.ENGINEER, "updates, promotions, policies, keys, notifications"),
    (Role.REVIEWER, "flags and reviews"),
    (Role.VIEWER, "looks at every page"),
)


@require_safe
@member_required()
def members(request: MemberRequest) -> HttpResponse:
    return _page(request)


@never_cache
@require_POST
@member_required(Role.OWNER)
def invite(request: MemberRequest) -> HttpResponse:
    """The page again with the link, which is shown this once."""
    name, role = request.POST.get("username", ""), request.POST.get("role", "")
    return _with_link(request, lambda: service.invite(name, role, actor=request.user.get_username()))


@never_cache
@require_POST
@member_required(Role.OWNER)
def link(request: MemberRequest, member: int) -> HttpResponse:
    return _with_link(request, lambda: service.new_sign_in_link(member, actor=request.user.get_username()))


@require_POST
@member_required(Role.OWNER)
def role(request: MemberRequest, member: int) -> HttpResponse:
    def act() -> str:
        changed = service.change_role(member, request.POST.get("role", ""), actor=request.user.get_username())
        return f"{changed.user} is {changed.role} now."

    return carry_out(request, act, back=_address(request))


@require_POST
@member_required(Role.OWNER)
def remove(request: MemberRequest, member: int) -> HttpResponse:
    def act() -> str:
        return f"{service.remove(member, actor=request.user.get_username())} is no member any more."

    return carry_out(request, act, back=_address(request))


def _with_link(request: MemberRequest, act: Callable[[], service.Invited]) -> HttpResponse:
    try:
        with transaction.atomic():
            invited = act()
    except NotFound:
        raise
    except StropError as error:
        return _page(request, error=error)
    return _page(request, invited=invited)


def _page(
    request: MemberRequest, *, invited: service.Invited | None = None, error: StropError | None = None
) -> HttpResponse:
    path = reverse("console:sign-in-link", args=[invited.token]) if invited else None
    context = {
        "members": service.members(),
        "roles": ROLES,
        "invited": invited,
        "link": settings.PUBLIC_URL + path if path else None,
        "problem": error.message if error else "",
        "wrong": error.field if error else "",
        "sent": request.POST,
    }
    return render(request, "settings/members.html", context, status=error.status if error else 200)


def _address(request: MemberRequest) -> str:
    return reverse("console:members", args=[request.member.project.slug])
