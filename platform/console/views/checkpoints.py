"""Checkpoints: the line they form, and each one's gate report with what a person may do about it."""

from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console import charts
from console.access import MemberRequest, carry_out, member_required
from console.reads import checkpoints as reads
from console.reads import overview as loop
from console.reads import policies
from registry.models import Checkpoint, Role
from registry.services import find_checkpoint
from rl_online.models import GateReport
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
        nodes = reads.line(policy, loop.accept_shares(policy, last=1000)) if standing.deployment else []
        context |= {"nodes": nodes, "standing": standing}
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
            "figure": _forest(reports[0]) if reports else None,
            "judge": (reports[0].judge or reports[0].evidence.get("judge")) if reports else None,
            "events": reads.events(found),
            "children": reads.children(found),
            "holdings": reads.holdings(found),
            "share": loop.accept_shares(found.policy, last=1000).get(found.version),
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
            expected=found,
        )
        return f"{deployment.checkpoint} serves again."

    return carry_out(request, act, back=_page(request, found))


def _page(request: MemberRequest, checkpoint: Checkpoint) -> str:
    return reverse("console:checkpoint", args=[request.member.project.slug, checkpoint])


def _forest(report: GateReport) -> dict[str, Any] | None:
    rows = [
        (
            f"{finding['half']}<br>vs {finding['role']} {finding['checkpoint']}",
            finding["difference"]["mean"],
            finding["difference"]["lower"],
            finding["difference"]["upper"],
            finding["num_common"],
        )
        for finding in report.evidence.get("findings", [])
        if finding.get("difference")
    ]
    return charts.differences(rows, margin=report.evidence.get("limits", {}).get("margin", 0.0))
