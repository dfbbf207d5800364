"""Checkpoints as a line: which came from which, how each was judged, what people did with it."""

import math
from collections import Counter
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Avg, Count, F, Q

from evals.models import EvalRun, Score
from evals.statistics.proportions import wilson
from feedback.selectors import AcceptShare
from registry.models import AuditEvent, Checkpoint, Policy
from rl_online.models import EngineHolding, GateReport, LearningPlan
from rl_online.selectors import LineEntry, checkpoint_line
from rl_online.services.answers import SCORER
from rl_online.services.plans import gate_sampling

NORMAL_95 = 1.96


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOut:
    """How a checkpoint answers problems that nothing trains on."""

    benchmark: str
    n: int  # problems scored
    mean: float
    low: float | None  # 95 %; None where one problem says nothing of its spread
    high: float | None
    interval: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One row of the lineage table."""

    entry: LineEntry
    share: AcceptShare | None  # None: no settled turns
    heldout: HeldOut | None  # None: never asked the gate's problems
    engines: list[str]  # that hold it
    num_refused: int  # engines that could not load it


def line(policy: Policy, shares: dict[int, AcceptShare]) -> list[Node]:
    """Every checkpoint of a policy that serves, newest first."""
    held: dict[UUID, list[str]] = {}
    refused: Counter[UUID] = Counter()
    rows = EngineHolding.objects.filter(checkpoint__policy=policy).order_by("engine")
    for checkpoint_id, engine, error in rows.values_list("checkpoint_id", "engine", "error"):
        if error:
            refused[checkpoint_id] += 1
        else:
            held.setdefault(checkpoint_id, []).append(engine)
    scores = heldout_scores(policy)
    return [
        Node(
            entry=entry,
            share=shares.get(entry.checkpoint.version),
            heldout=scores.get(str(entry.checkpoint)),
            engines=held.get(entry.checkpoint.id, []),
            num_refused=refused[entry.checkpoint.id],
        )
        for entry in checkpoint_line(policy)
    ]


def heldout_scores(policy: Policy, checkpoint: Checkpoint | None = None) -> dict[str, HeldOut]:
    """Checkpoint -> its mean score on the gate's held-out problems, for the benchmark the plan names now."""
    plan = LearningPlan.objects.filter(policy=policy).first()
    if plan is None or not plan.gate_benchmark:
        return {}
    name, _, version = plan.gate_benchmark.rpartition("@")
    runs = EvalRun.objects.filter(
        benchmark__name=name, benchmark__version=version, scorer=SCORER, sampling=gate_sampling(plan),
        checkpoint__startswith=f"{policy.name}@",
    )  # fmt: skip
    if checkpoint is not None:
        runs = runs.filter(checkpoint=str(checkpoint))
    counted = (
        Score.objects.filter(run__in=runs, value__isnull=False)
        .values_list("run__checkpoint")
        .annotate(n=Count("id"), mean=Avg("value"), square=Avg(F("value") * F("value")))
    )
    return {row[0]: _held_out(plan.gate_benchmark, n=row[1], mean=row[2], square=row[3]) for row in counted}


def _held_out(benchmark: str, *, n: int, mean: float, square: float) -> HeldOut:
    """Scores that are all 0 or 1 get Wilson's interval; others, mean and standard error."""
    if abs(square - mean) < 1e-9:
        share = wilson(round(mean * n), n)
        return HeldOut(benchmark=benchmark, n=n, mean=mean, low=share.low, high=share.high, interval="wilson")
    if n < 2:
        return HeldOut(benchmark=benchmark, n=n, mean=mean, low=None, high=None, interval="none for one problem")
    half = NORMAL_95 * math.sqrt(max(0.0, square - mean * mean) / (n - 1))
    low, high = max(0.0, mean - half), min(1.0, mean + half)
    return HeldOut(benchmark=benchmark, n=n, mean=mean, low=low, high=high, interval="mean ± 1.96 SE")


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
