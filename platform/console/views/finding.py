"""Finding things by name: the command palette, and the address that any id leads to."""

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from console.access import MemberRequest, member_required
from console.palette import find_items
from console.reads.objects import locate
from registry.selectors import memberships
from registry.tenancy import tenant


@require_safe
@member_required()
def palette(request: MemberRequest) -> HttpResponse:
    return JsonResponse({"items": find_items(request.GET.get("q", ""), request.member)})


@require_safe
@member_required()
def resolve(request: MemberRequest, reference: str) -> HttpResponse:
    """Go to the object of this name in this project."""
    found = locate(reference, request.member.project.slug)
    if found is None:
        raise Http404("no object of this name")
    return redirect(found.url)


@require_safe
@login_required
def resolve_anywhere(request: HttpRequest, reference: str) -> HttpResponse:
    """In whichever of the person's projects it is; where several have the name, the one visited last."""
    last = request.session.get("project")
    for member in sorted(memberships(request.user), key=lambda one: one.project.slug != last):
        with tenant(member.project_id):
            found = locate(reference, member.project.slug)
        if found is not None:
            return redirect(found.url)
    raise Http404("no object of this name in a project of this account")
