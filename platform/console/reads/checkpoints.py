"""Checkpoints as a line: which came from which, how each was judged, what people did with it."""

from dataclasses import dataclass

from django.db.models import Q

from evals.statistics.proportions import Share
from registry.models import AuditEvent, Checkpoint, Policy
from rl_online.models import EngineHolding, GateReport


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One checkpoint in the lineage table."""

    checkpoint: Checkpoint
    depth: int  # 0 for a line that carries on, one more for every step off it
    report: GateReport | None  # the newest
    share: Share | None  # None: no settled turns
    num_engines: int
    num_engine_errors: int


def line(policy: Policy, shares: dict[int, Share]) -> list[Node]:
    """Every checkpoint of a policy, newest first. `depth` tells a branch that was left from the line that serves."""
    checkpoints = list(
        Checkpoint.objects.filter(policy=policy).select_related("policy", "parent__policy").order_by("-version")
    )
    reports: dict[object, GateReport] = {}
    for report in GateReport.objects.filter(checkpoint__policy=policy).order_by("created_at"):
        reports[report.checkpoint_id] = report
    held: dict[object, list[EngineHolding]] = {}
    for holding in EngineHolding.objects.filter(checkpoint__policy=policy):
        held.setdefault(holding.checkpoint_id, []).append(holding)
    serving = next((one for one in checkpoints if one.state == "serving"), None)
    on_line = _ancestors(serving, {one.id: one for one in checkpoints})
    return [
        Node(
            checkpoint=one,
            depth=0 if one.id in on_line or not on_line else 1,
            report=reports.get(one.id),
            share=shares.get(one.version),
            num_engines=sum(not row.error for row in held.get(one.id, [])),
            num_engine_errors=sum(bool(row.error) for row in held.get(one.id, [])),
        )
        for one in checkpoints
    ]


def _ancestors(checkpoint: Checkpoint | None, by_id: dict[object, Checkpoint]) -> set[object]:
    found: set[object] = set()
    while checkpoint is not None:
        found.add(checkpoint.id)
        checkpoint = by_id.get(checkpoint.parent_id)
    return found


def gate_reports(checkpoint: Checkpoint) -> list[GateReport]:
    return list(GateReport.objects.filter(checkpoint=checkpoint).order_by("-created_at"))


def events(checkpoint: Checkpoint) -> list[AuditEvent]:
    """Everything that was done to this checkpoint, newest first, also what made another one serve in its place."""
    name = str(checkpoint)
    about = Q(object_kind="checkpoint") & (Q(object_id=name) | Q(before__serving=name) | Q(after__serving=name))
    return list(AuditEvent.objects.filter(about).order_by("-at", "-id")[:100])


def children(checkpoint: Checkpoint) -> list[Checkpoint]:
    return list(checkpoint.children.select_related("policy").order_by("version"))


def holdings(checkpoint: Checkpoint) -> list[EngineHolding]:
    return list(EngineHolding.objects.filter(checkpoint=checkpoint).order_by("engine"))
