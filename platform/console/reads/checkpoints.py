"""Checkpoints as a line: which came from which, how each was judged, what people did with it."""

from collections import Counter
from dataclasses import dataclass

from django.db.models import Q

from feedback.selectors import AcceptShare
from registry.models import AuditEvent, Checkpoint, Policy
from rl_online.models import EngineHolding, GateReport
from rl_online.selectors import LineEntry, checkpoint_line


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One row of the lineage table."""

    entry: LineEntry
    share: AcceptShare | None  # None: no settled turns
    num_engines: int
    num_refused: int  # engines that could not load it


def line(policy: Policy, shares: dict[int, AcceptShare]) -> list[Node]:
    """Every checkpoint of a policy that serves, newest first."""
    held = Counter(EngineHolding.objects.filter(checkpoint__policy=policy, error="").values_list("checkpoint_id"))
    errors = EngineHolding.objects.filter(checkpoint__policy=policy).exclude(error="")
    refused = Counter(errors.values_list("checkpoint_id"))
    return [
        Node(
            entry=entry,
            share=shares.get(entry.checkpoint.version),
            num_engines=held[(entry.checkpoint.id,)],
            num_refused=refused[(entry.checkpoint.id,)],
        )
        for entry in checkpoint_line(policy)
    ]


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
