"""Settings of the project itself, the audit trail, and one's own password."""

from typing import Any

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm, SetPasswordForm
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console import stale_forms
from console.access import MemberRequest, member_required
from console.listing import show_list
from console.lists.audit import AUDIT
from console.reads import project_form
from console.stale_forms import Outdated
from registry.errors import InvalidInput
from registry.models import Role
from registry.services import change_project_settings, locked_settings, project_settings


@require_safe
@member_required()
def settings(request: MemberRequest) -> HttpResponse:
    return _page(request)


@require_POST
@member_required(Role.OWNER)
def change(request: MemberRequest) -> HttpResponse:
    """What is refused is said on the page, with all that was written still in its form."""
    project = request.member.project
    try:
        with transaction.atomic():
            now = locked_settings(project)
            stale_forms.check(request.POST, now.to_json(), project_form.TITLES)
            changes = project_form.changes(now, request.POST)
            if changes:
                change_project_settings(project, actor=request.user.get_username(), **changes)
    except (InvalidInput, Outdated) as error:
        return _page(request, error)
    titles = ", ".join(project_form.TITLES[name].lower() for name in changes)
    messages.success(request, f"Changed: {titles}." if changes else "Nothing was changed.")
    return redirect("console:settings", project.slug)


@require_safe
@member_required()
def audit(request: MemberRequest) -> HttpResponse:
    return show_list(request, AUDIT, template="settings/audit.html")


@require_http_methods(["GET", "HEAD", "POST"])
@member_required()
def password(request: MemberRequest) -> HttpResponse:
    """Choose a password, so that signing in needs no link; the old one is asked for where there is one."""
    kind: Any = PasswordChangeForm if request.user.has_usable_password() else SetPasswordForm
    form = kind(request.user, request.POST or None)
    if request.method == "POST" and form.is_valid():
        form.save()
        update_session_auth_hash(request, form.user)
        messages.success(request, "Your password is set; other browsers are signed out.")
        return redirect("console:password", request.member.project.slug)
    return render(request, "settings/password.html", {"form": form}, status=400 if form.errors else 200)


def _page(request: MemberRequest, error: InvalidInput | Outdated | None = None) -> HttpResponse:
    now = project_settings(request.member.project_id)
    context = {
        "groups": project_form.groups(now, request.POST if error else None),
        "seen": stale_forms.seen(now.to_json()),
        **stale_forms.said(error, stale_forms.last_save("project settings", request.member.project.slug)),
    }
    return render(request, "settings/project.html", context, status=error.status if error else 200)
