"""Settings -> Policies: what serves, and making a policy of a folder, a hub name or the default model."""

from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.views.decorators.http import require_POST, require_safe

from console.access import MemberRequest, member_required
from console.live import Snapshot
from console.reads import policy_settings as reads
from console.streaming import stream
from registry.errors import InvalidInput, StropError
from registry.models import Project, Role
from rl_online.models import LearningPlan, Promotion
from rl_online.services.policy_imports import DEFAULT_MODEL, request_import

POLL_S = 1.0
NUMBERS = ("every_turns", "min_turns")


@require_safe
@member_required(Role.ENGINEER)
def policies(request: MemberRequest) -> HttpResponse:
    return _page(request)


@require_POST
@member_required(Role.ENGINEER)
def add(request: MemberRequest) -> HttpResponse:
    sent = request.POST
    source = DEFAULT_MODEL if sent.get("kind") == "default" else sent.get("source", "")
    try:
        with transaction.atomic():
            request_import(sent.get("name", ""), source, actor=request.user.get_username(), plan=_plan(request))
    except StropError as error:
        return _page(request, error)
    return redirect("console:policies", request.member.project.slug)


async def live(request: HttpRequest, project: str) -> HttpResponse:
    def read(project: Project) -> Snapshot:
        context = _moving() | {"project": project}
        return Snapshot(
            parts={
                "policy-rows": render_to_string("settings/_policies.html", context),
                "policy-imports": render_to_string("settings/_imports.html", context),
            },
            figures={},
            is_over=context["is_settled"],
        )

    return await stream(request, project, ("policies",), read, poll_s=POLL_S, role=Role.ENGINEER)


def _moving() -> dict[str, Any]:
    rows, imports = reads.policy_rows(), reads.imports()
    return {"rows": rows, "imports": imports, "is_settled": reads.is_settled(rows, imports)}


def _plan(request: MemberRequest) -> dict[str, Any]:
    """Raises InvalidInput for a number that is none; the service checks the rest."""
    plan: dict[str, Any] = {"promotion": request.POST.get("promotion", Promotion.AUTOMATIC)}
    for name in NUMBERS:
        text = request.POST.get(name, "").strip()
        if text:
            if not (text.isascii() and text.isdigit() and len(text) < 8):
                raise InvalidInput(f"found {text[:40]!r}; give a whole number", field=name)
            plan[name] = int(text)
    if "every_turns" in plan:
        plan["max_turns"] = max(plan["every_turns"], LearningPlan._meta.get_field("max_turns").default)
    return plan


def _page(request: MemberRequest, error: StropError | None = None) -> HttpResponse:
    context = _moving() | {
        "promotions": Promotion.choices,
        "defaults": {name: LearningPlan._meta.get_field(name).default for name in NUMBERS},
        "problem": error.message if error else "",
        "wrong": error.field if error else "",
        "sent": request.POST,
    }
    return render(request, "settings/policies.html", context, status=error.status if error else 200)
