"""First steps: from an empty project to the first signal and on, watched live."""

from typing import Any

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from console import snippets
from console.access import MemberRequest, carry_out, member_required
from console.live import Snapshot
from console.reads import onboarding as reads
from console.reads import policies
from console.streaming import stream
from feedback.services import sample_data
from registry.models import Project, Role, Scope
from registry.services import create_key

POLL_S = 1.0
KEY_NAME = "first steps"


@require_safe
@member_required()
def start(request: MemberRequest) -> HttpResponse:
    return _page(request)


@never_cache
@require_POST
@member_required(Role.ENGINEER)
def make_key(request: MemberRequest) -> HttpResponse:
    """The page again with a new key in every snippet; it is shown this once."""
    scopes = [str(Scope.INGEST), str(Scope.INFER)]
    with transaction.atomic():
        text, _ = create_key(KEY_NAME, scopes, actor=request.user.get_username(), created_by=request.user)
    return _page(request, key=text)


@require_POST
@member_required(Role.OWNER)
def load_demo_data(request: MemberRequest) -> HttpResponse:
    def act() -> str:
        receipt = sample_data.load(request.member.project_id, actor=request.user.get_username())
        return f"{receipt.outcomes.get('accepted', 0)} invented turns and signals are in; labels follow in a moment."

    return carry_out(request, act, back=_address(request))


@require_POST
@member_required(Role.OWNER)
def remove_demo_data(request: MemberRequest) -> HttpResponse:
    def act() -> str:
        number = sample_data.remove(request.member.project_id, actor=request.user.get_username())
        return f"{number} invented turns are gone, and all that was made of them."

    return carry_out(request, act, back=_address(request))


async def live(request: HttpRequest, project: str) -> HttpResponse:
    def read(project: Project) -> Snapshot:
        context = _moving() | {"project": project}
        return Snapshot(
            parts={
                "start-steps": render_to_string("onboarding/_steps.html", context),
                "start-refusals": render_to_string("onboarding/_refusals.html", context),
            },
            figures={},
            is_over=all(step.is_done for step in context["steps"]),
        )

    return await stream(request, project, ("start",), read, poll_s=POLL_S)


def _moving() -> dict[str, Any]:
    steps = reads.steps()
    done = {step.name for step in steps if step.is_done}
    return {"steps": steps, "done": done, "refusals": reads.refusals(), "public_url": settings.PUBLIC_URL}


def _page(request: MemberRequest, key: str | None = None) -> HttpResponse:
    policy = policies.chosen(policies.all_policies(), request.GET.get("policy"))
    return render(
        request,
        "onboarding/start.html",
        _moving()
        | {
            "policy": policy,
            "gateway": snippets.through_gateway(policy.name, key) if policy else [],
            "elsewhere": snippets.from_elsewhere(key),
            "key": key,
            "url": settings.PUBLIC_URL,
            "can_load": sample_data.is_loadable(),
            "is_loaded": sample_data.is_loaded(),
        },
    )


def _address(request: MemberRequest) -> str:
    return reverse("console:onboarding", args=[request.member.project.slug])
