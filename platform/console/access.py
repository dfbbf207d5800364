"""Who may open which page, and the tenant every page runs in.

A stranger and a member of another project are told that there is nothing here (404); a member without the role is told
so (403); an anonymous visitor is sent to sign in.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from console.timerange import zone_of
from registry.errors import Forbidden, NotFound, StropError
from registry.models import Member, Role
from registry.selectors import memberships
from registry.tenancy import tenant

View = Callable[..., HttpResponse]


class MemberRequest(HttpRequest):
    """A request that `member_required` let through."""

    member: Member  # of the project in the address; its `project` is loaded
    memberships: list[Member]  # all of this person's, for the project switcher


def member_of(mine: list[Member], slug: str) -> Member:
    """Raises Http404 when this person is no member of the project."""
    for member in mine:
        if member.project.slug == slug:
            return member
    raise Http404(f"no project {slug!r} for this account")


def member_required(role: str = Role.VIEWER) -> Callable[[View], View]:
    """Run the view inside its project's tenant, for members who hold at least `role`."""

    def decorate(view: View) -> View:
        @wraps(view)
        def guarded(request: MemberRequest, project: str, **kwargs: Any) -> HttpResponse:
            if not request.user.is_authenticated:
                return redirect_to_login(request.get_full_path())
            request.memberships = memberships(request.user)
            request.member = member_of(request.memberships, project)
            if not Role(request.member.role).may(Role(role)):
                raise PermissionDenied(f"this needs the role {role}; yours is {request.member.role}")
            if request.session.get("project") != project:
                request.session["project"] = project
            try:
                with timezone.override(zone_of(request)), tenant(request.member.project_id):
                    return view(request, **kwargs)
            except NotFound as error:
                raise Http404(error.message) from error
            except Forbidden as error:
                raise PermissionDenied(error.message) from error

        guarded.role = role  # type: ignore[attr-defined]  # read by the test that walks every address
        return guarded

    return decorate


def carry_out(request: HttpRequest, act: Callable[[], str], *, back: str) -> HttpResponse:
    """Call one service and go back with its sentence as a toast; what it refuses is rolled back and said instead."""
    try:
        with transaction.atomic():
            sentence = act()
    except (NotFound, Forbidden):
        raise
    except StropError as error:
        messages.error(request, f"{error.field}: {error.message}" if error.field else error.message)
    else:
        messages.success(request, sentence)
    return redirect(back)


def said(sentence: str, *, link: str, url: str) -> SafeString:
    """A toast's sentence with a link behind it: said("Update 4 is queued.", link="Follow it", url=...)."""
    return format_html('{} <a href="{}">{}</a>', sentence, url, link)
