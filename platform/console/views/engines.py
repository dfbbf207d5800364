"""Engines: what they hold and how they do."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from console import snippets
from console.access import MemberRequest, member_required
from console.reads import engines as reads


@require_safe
@member_required()
def engines(request: MemberRequest) -> HttpResponse:
    return render(
        request,
        "engines/engines.html",
        {
            "engines": reads.engines(),
            "wants": reads.wants(),
            "processes": reads.processes(),
            "snippet": snippets.another_engine(),
        },
    )
