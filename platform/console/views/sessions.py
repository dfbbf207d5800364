"""Sessions: finding them, and reading one."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from console import snippets
from console.access import MemberRequest, member_required
from console.reads import policies
from console.reads import sessions as reads


@require_safe
@member_required()
def sessions(request: MemberRequest) -> HttpResponse:
    filters = reads.Filters.of(request.GET)
    page, rows = reads.page_of_sessions(filters, request.GET.get("page"))
    context = {"filters": filters, "page": page, "rows": rows}
    if request.htmx:
        return render(request, "sessions/_results.html", context)
    policy = policies.chosen(policies.all_policies(), None) if not rows else None
    context |= {
        "choices": reads.choices(),
        "outcomes": reads.OUTCOMES,
        "sources": reads.SOURCES,
        "snippets": snippets.first_signal(policy.name if policy else None) if not rows and filters.is_empty else [],
    }
    return render(request, "sessions/sessions.html", context)


@require_safe
@member_required()
def session(request: MemberRequest, session: str) -> HttpResponse:
    return render(request, "sessions/session.html", {"view": reads.find_session(session)})
