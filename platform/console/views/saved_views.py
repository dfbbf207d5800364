"""Keeping a list's filter under a name, and forgetting it."""

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_POST

from console.access import MemberRequest, carry_out, member_required
from console.context import places
from console.listing import tidy
from registry.errors import NotFound
from registry.saved_views import delete_view, save_view


@require_POST
@member_required()
def save(request: MemberRequest) -> HttpResponse:
    page = request.POST.get("page", "")
    query, back = tidy(request.POST.get("query", "")), _address(request, page)

    def act() -> str:
        view = save_view(
            request.member,
            page=page,
            name=request.POST.get("name", ""),
            query=query,
            is_shared="shared" in request.POST,
        )
        return f"Saved as {view.name}{', for everyone in the project' if view.is_shared else ''}."

    return carry_out(request, act, back=f"{back}?{query}")


@require_POST
@member_required()
def delete(request: MemberRequest, view: int) -> HttpResponse:
    page = request.POST.get("page", "")

    def act() -> str:
        return f"The view {delete_view(view, request.member).name} is gone."

    return carry_out(request, act, back=_address(request, page))


def _address(request: MemberRequest, page: str) -> str:
    """Raises NotFound for what is no page of the sidebar."""
    if page not in {place.url for place in places()}:
        raise NotFound(f"no list {page[:60]!r}")
    return reverse(f"console:{page}", args=[request.member.project.slug])
