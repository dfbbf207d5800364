"""Signing in, and where a visit without an address lands."""

from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_safe

from registry.selectors import memberships
from registry.signin import redeem


class SignIn(LoginView):
    template_name = "account/sign_in.html"
    redirect_authenticated_user = True


@never_cache
@require_GET  # a preview's HEAD must not use the link up
def sign_in_link(request: HttpRequest, token: str) -> HttpResponse:
    """A one-time link, from the terminal or from an owner of a project."""
    user = redeem(token)
    if user is None:
        messages.error(request, "This sign-in link opens nothing any more. Ask whoever gave it to you for a new one.")
        return redirect("console:sign-in")
    login(request, user)
    return redirect("console:start")


@login_required
@require_safe
def start(request: HttpRequest) -> HttpResponse:
    """The project visited last, else the first; without any, a page that says how to get one."""
    slugs = [member.project.slug for member in memberships(request.user)]
    if not slugs:
        return render(request, "account/no_project.html")
    last = request.session.get("project")
    return redirect("console:overview", project=last if last in slugs else slugs[0])
