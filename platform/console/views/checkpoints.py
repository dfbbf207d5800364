"""Checkpoints: the line they form, and each one's gate report with what a person may do about it."""

from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console.access import MemberRequest, carry_out, member_required
from console.reads import checkpoints as reads
from console.reads import overview as loop
from console.reads import policies
from console.reads.lineage_tree import draw
from console.views.gates import forest
from registry.errors import InvalidInput
from registry.models import Checkpoint, Role
from registry.services import find_checkpoint
from rl_online.services.promotion import PROMOTABLE, objection_to
from rl_online.services.promotion import promote as promote_checkpoint
from rl_online.services.promotion import reject as reject_checkpoint
from rl_online.services.promotion import roll_back as roll_back_policy


@require_safe
@member_required()
def checkpoints(request: MemberRequest) -> HttpResponse:
    known = policies.all_policies()
    policy = policies.chosen(known, request.GET.get("policy"))
    context: dict[str, Any] = {"policies": known, "policy": policy, "nodes": []}
    if policy is not None:
        standing = policies.standing(policy)
        nodes = reads.line(policy, loop.accept_shares(policy)) if standing.deployment else []
        tree = draw([node.entry for node in nodes])
        context |= {"nodes": nodes, "standing": standing, "tree": tree}
    return render(request, "checkpoints/checkpoints.html", context)


@require_safe
@member_required()
def checkpoint(request: MemberRequest, name: str) -> HttpResponse:
    found = find_checkpoint(name)
    reports = reads.gate_reports(found)
    standing = policies.standing(found.policy)
    can_promote = found.state in PROMOTABLE and standing.deployment is not None
    return render(
        request,
        "checkpoints/checkpoint.html",
        {
            "checkpoint": found,
            "gate_command": f"strop gate {found} --json",
            "update": getattr(found, "update", None),
            "standing": standing,
            "report": reports[0] if reports else None,
            "older_reports": reports[1:],
            "findings": reports[0].evidence.get("findings", []) if reports else [],
            "limits": reports[0].evidence.get("limits", {}) if reports else {},
            "figure": forest(reports[0]) if reports else None,
            "judge": (reports[0].judge or reports[0].evidence.get("judge")) if reports else None,
            "events": reads.events(found),
            "children": reads.children(found),
            "holdings": reads.holdings(found),
            "heldout": reads.heldout_scores(found.policy, found).get(str(found)),
            "share": loop.accept_shares(found.policy, versions=[found.version]).get(found.version),
            "can_promote": can_promote,
            "objection": objection_to(found, standing.deployment) if can_promote and standing.deployment else None,
            "is_serving": standing.serving is not None and standing.serving.pk == found.pk,
        },
    )


@require_POST
@member_required(Role.ENGINEER)
def promote(request: MemberRequest, name: str) -> HttpResponse:
    found = find_checkpoint(name)

    def act() -> str:
        promote_checkpoint(found, actor=request.user.get_username(), reason=request.POST.get("reason", "").strip())
        return f"{found} serves now. Engines fetch it and report when they hold it."

    return carry_out(request, act, back=_page(request, found))


@require_POST
@member_required(Role.ENGINEER)
def reject(request: MemberRequest, name: str) -> HttpResponse:
    found = find_checkpoint(name)

    def act() -> str:
        reject_checkpoint(found, actor=request.user.get_username(), reason=request.POST.get("reason", "").strip())
        return f"{found} is rejected."

    return carry_out(request, act, back=_page(request, found))


@require_POST
@member_required(Role.ENGINEER)
def roll_back(request: MemberRequest, name: str) -> HttpResponse:
    found = find_checkpoint(name)

    def act() -> str:
        deployment = roll_back_policy(
            found.policy,
            actor=request.user.get_username(),
            reason=request.POST.get("reason", "").strip(),
            version=_version(request.POST.get("version", "")),
            expected=found,
        )
        return f"{deployment.checkpoint} serves again."

    return carry_out(request, act, back=_page(request, found))


def _version(text: str) -> int | None:
    """What to go back to; empty: the predecessor."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidInput(f"found {text[:40]!r}; give a version", field="version")
    return int(text)


def _page(request: MemberRequest, checkpoint: Checkpoint) -> str:
    """Where the form was: the deployments, else the checkpoint's own page."""
    if request.POST.get("back") == "deployments":
        return reverse("console:deployments", args=[request.member.project.slug]) + f"?policy={checkpoint.policy.name}"
    return reverse("console:checkpoint", args=[request.member.project.slug, checkpoint])
