"""Settings of the project itself, the audit trail, and one's own password."""

from typing import Any

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm, SetPasswordForm
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.access import MemberRequest, carry_out, member_required
from console.listing import show_list
from console.lists.audit import AUDIT
from console.reads import project_form
from registry.models import Role
from registry.services import change_project_settings, project_settings


@require_safe
@member_required()
def settings(request: MemberRequest) -> HttpResponse:
    now = project_settings(request.member.project_id)
    return render(request, "settings/project.html", {"groups": project_form.groups(now)})


@require_POST
@member_required(Role.OWNER)
def change(request: MemberRequest) -> HttpResponse:
    def act() -> str:
        now = project_settings(request.member.project_id)
        changes = project_form.changes(now, request.POST)
        if not changes:
            return "Nothing was changed."
        change_project_settings(request.member.project, actor=request.user.get_username(), **changes)
        return f"Changed: {', '.join(project_form.TITLES[name].lower() for name in changes)}."

    return carry_out(request, act, back=_page(request))


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


def _page(request: MemberRequest) -> str:
    return reverse("console:settings", args=[request.member.project.slug])
