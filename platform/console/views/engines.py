"""Engines: what they hold and how they do."""

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from console.access import MemberRequest, member_required
from console.reads import engines as reads
from console.snippets import Snippet


@require_safe
@member_required()
def engines(request: MemberRequest) -> HttpResponse:
    return render(
        request,
        "engines/engines.html",
        {
            "engines": reads.engines(),
            "asked": reads.asked_by_gateway(),
            "wants": reads.wants(),
            "processes": reads.processes(),
            "snippet": another_engine(),
        },
    )


def another_engine() -> Snippet:
    """An engine beside the one that `strop up` starts, under a name of its own."""
    return Snippet(
        name="snippet-engine",
        caption="shell: another engine, on a machine that reaches this address",
        text=f"""export STROP_TOKEN_FILE=secrets/internal  # of this Strop's home
python -m rl_online.commands.engine --name engine-2 --web {settings.PUBLIC_URL} --device cuda \\
  --socket engine-2.sock --cache engine-2-weights""",
    )
