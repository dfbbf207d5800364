"""What the loop tells a project's channels, in the transaction in which it happened. Inside a tenant."""

from registry.models import NoticeKind, Project
from registry.notifications import emit
from rl_online.models import GateReport, UpdateRun


def tell_decided(report: GateReport) -> None:
    """The gate has spoken about a candidate."""
    checkpoint = report.checkpoint
    emit(
        NoticeKind(NoticeKind.GATE_DECIDED),
        report.project_id,
        {
            "title": f"The gate says {report.decision.replace('_', ' ')} for {checkpoint}",
            "path": f"/p/{_slug(report)}/checkpoints/{checkpoint}",
            "checkpoint": str(checkpoint),
            "decision": report.decision,
            "reasons": report.reasons,
        },
        key=str(report.pk),
    )


def tell_failed(run: UpdateRun) -> None:
    last_line = run.error.strip().splitlines()[-1:] or ["unknown"]
    emit(
        NoticeKind(NoticeKind.UPDATE_FAILED),
        run.project_id,
        {
            "title": f"The {run} failed",
            "path": f"/p/{_slug(run)}/updates/{run.id}",
            "update": str(run.id),
            "policy": run.policy.name,
            "error": last_line[0],
        },
        key=str(run.id),
    )


def _slug(row: GateReport | UpdateRun) -> str:
    return Project.objects.values_list("slug", flat=True).get(id=row.project_id)
