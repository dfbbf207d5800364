"""Gate reports: the list, one report at its permanent address, fit to print, and the problems behind a finding."""

from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console import plots
from console.access import MemberRequest, carry_out, member_required
from console.charts.power import power
from console.listing import show_list
from console.lists.gates import GATES
from console.reads import gates as reads
from console.reads import updates as update_reads
from registry.models import Role
from rl_online.models import GateReport
from rl_online.services.reopening import objection_to_reopening, reopen

ROWS_THAT_FIT = 6  # in the forest's usual height; more rows make it taller
ROW_PX, FRAME_PX = 40, 80


@require_safe
@member_required()
def gates(request: MemberRequest) -> HttpResponse:
    return show_list(request, GATES)


@require_safe
@member_required()
def gate(request: MemberRequest, report: int) -> HttpResponse:
    found = reads.find_report(report)
    return render(
        request,
        "gates/gate.html",
        {
            "report": found,
            "checkpoint": found.checkpoint,
            "limits": found.evidence.get("limits", {}),
            "findings": reads.findings(found),
            "live_findings": found.evidence.get("live_findings", []),
            "reach": found.evidence.get("reach", []),
            "targets": found.evidence.get("targets", []),
            "vote": found.evidence.get("vote"),
            "guards": found.evidence.get("guards", []),
            "forgetting": found.evidence.get("forgetting"),
            "figure": forest(found),
            "power": power(reads.curves(found)),
            "suites": reads.suites_behind(found),
            "judge": found.judge or found.evidence.get("judge"),
            "judged": reads.judged_pairs(found),
            "settings": update_reads.settings_of(found.run.config) if found.run else [],
            "events": reads.acts_on(found),
            "may_reopen": objection_to_reopening(found) is None,
        },
    )


@require_POST
@member_required(Role.ENGINEER)
def gate_reopen(request: MemberRequest, report: int) -> HttpResponse:
    found = reads.find_report(report)

    def act() -> str:
        reopen(found, actor=request.user.get_username(), reason=request.POST.get("reason", "").strip())
        return f"The gate is asked again about {found.checkpoint}; this report stays."

    return carry_out(request, act, back=reverse("console:gate", args=[request.member.project.slug, report]))


@require_safe
@member_required()
def problems(request: MemberRequest, report: int) -> HttpResponse:
    """Both answers to every problem of one finding; `finding` is its place in the report, `verdict` narrows."""
    found = reads.find_report(report)
    number = request.GET.get("finding", "0")
    finding = reads.finding_of(found, number)
    pairs = reads.pairs(found, finding)
    verdict = request.GET.get("verdict") if request.GET.get("verdict") in reads.SHOWN else None
    return render(
        request,
        "gates/problems.html",
        {
            "report": found,
            "finding": finding,
            "title": reads.titled(finding),
            "number": number,
            "verdict": verdict,
            "verdicts": [(name, sum(pair.verdict == name for pair in pairs)) for name in reads.SHOWN],
            "num_pairs": len(pairs),
            "page": reads.page_of_pairs(pairs, verdict, request.GET.get("page")),
        },
    )


def forest(report: GateReport) -> dict[str, Any] | None:
    """Each part against each baseline, with its bounds and the margin."""
    usual = report.evidence.get("limits", {}).get("margin", 0.0)  # reports of before margins were kept by finding
    rows = [
        (
            f"{reads.titled(finding)}<br>vs {finding['role']} {finding['checkpoint']}",
            finding["difference"]["mean"],
            finding["difference"]["lower"],
            finding["difference"]["upper"],
            finding["num_common"],
            finding.get("margin", usual),
        )
        for finding in reads.findings(report)
        if finding.get("difference")
    ]
    figure = plots.differences(rows)
    if figure is not None and len(rows) > ROWS_THAT_FIT:
        figure["layout"]["height"] = FRAME_PX + ROW_PX * len(rows)
    return figure
