"""Reads for pages and commands: where the loop stands, what was learnt from what, and what an update looked like.

Inside a tenant. Nothing here changes a row.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from registry.errors import NotFound
from registry.models import Checkpoint, Deployment, Policy
from registry.tenancy import current_project_id
from rl_online.collecting import line_of
from rl_online.models import OPEN_STATES, EngineHolding, GateReport, LearningPlan, UpdateMetric, UpdateRun, UpdateState


@dataclass(frozen=True, kw_only=True)
class LoopStatus:
    """One policy's loop at this moment."""

    policy: Policy
    plan: LearningPlan
    deployment: Deployment
    running: UpdateRun | None  # queued, training or proving
    waiting: UpdateRun | None  # passed the gate, waits for a person
    last: UpdateRun | None  # the newest that is over
    engines: list[EngineHolding]  # what engines hold of this policy


@dataclass(frozen=True, kw_only=True)
class UpdateDetail:
    run: UpdateRun
    metrics: list[UpdateMetric]  # by step
    reports: list[GateReport]  # newest first


@dataclass(frozen=True, kw_only=True)
class LineEntry:
    """One checkpoint of a policy with what led to it and what was said about it."""

    checkpoint: Checkpoint
    run: UpdateRun | None  # None for a first checkpoint
    report: GateReport | None  # the newest
    is_serving: bool
    is_on_serving_line: bool
    lag: int | None  # updates behind the serving checkpoint on its line


@dataclass(frozen=True, kw_only=True)
class Learnt:
    """A turn's (or a person's) way into weights: one batch, one update, one checkpoint."""

    turn: str
    batch: str  # digest
    reward: float
    is_correction: bool
    run: UUID
    run_state: str
    version: int | None  # of the checkpoint; None when the update made none
    checkpoint_state: str | None
    was_deployed: bool


def loop_status(policy: Policy) -> LoopStatus:
    deployment = (
        Deployment.objects.select_related("checkpoint__policy", "previous__policy", "canary__policy")
        .filter(policy=policy, alias="default")
        .first()
    )
    if deployment is None:
        raise NotFound(f"policy {policy.name!r} serves nothing yet", field="policy")
    runs = UpdateRun.objects.select_related("policy", "batch", "parent__policy", "checkpoint__policy").filter(
        policy=policy
    )
    over = [state for state in UpdateState.values if UpdateState(state).is_over]
    return LoopStatus(
        policy=policy,
        plan=LearningPlan.objects.select_related("reward_spec").get(policy=policy),
        deployment=deployment,
        running=runs.filter(state__in=OPEN_STATES).first(),
        waiting=runs.filter(state=UpdateState.WAITING).order_by("-version").first(),
        last=runs.filter(state__in=over).order_by("-version").first(),
        engines=list(EngineHolding.objects.select_related("checkpoint__policy").filter(checkpoint__policy=policy)),
    )


def updates(policy: Policy, *, limit: int = 50) -> list[UpdateRun]:
    """Newest first."""
    found = UpdateRun.objects.select_related("policy", "batch", "parent__policy", "checkpoint__policy")
    return list(found.filter(policy=policy).order_by("-version")[:limit])


def update_detail(run_id: UUID) -> UpdateDetail:
    """Raises NotFound."""
    found = UpdateRun.objects.select_related("policy", "batch__reward_spec", "parent__policy", "checkpoint__policy")
    run = found.filter(id=run_id).first()
    if run is None:
        raise NotFound("no such update")
    return UpdateDetail(
        run=run,
        metrics=list(run.metrics.order_by("step")),
        reports=list(GateReport.objects.select_related("checkpoint__policy").filter(run=run).order_by("-created_at")),
    )


def checkpoint_line(policy: Policy) -> list[LineEntry]:
    """Every checkpoint of the policy, newest first, those of abandoned branches too."""
    deployment = Deployment.objects.select_related("checkpoint").get(policy=policy, alias="default")
    line = line_of(policy, deployment.checkpoint)
    checkpoints = (
        Checkpoint.objects.select_related("policy", "parent__policy").filter(policy=policy).order_by("-version")
    )
    made = UpdateRun.objects.select_related("batch").filter(policy=policy, checkpoint__isnull=False)
    runs = {run.checkpoint_id: run for run in made}
    reports: dict[UUID, GateReport] = {}
    for report in GateReport.objects.filter(checkpoint__policy=policy).order_by("created_at"):
        reports[report.checkpoint_id] = report
    return [
        LineEntry(
            checkpoint=checkpoint,
            run=runs.get(checkpoint.id),
            report=reports.get(checkpoint.id),
            is_serving=checkpoint.id == deployment.checkpoint_id,
            is_on_serving_line=line.lag_of(checkpoint.version) is not None,
            lag=line.lag_of(checkpoint.version),
        )
        for checkpoint in checkpoints
    ]


def lineage_of_turn(turn_id: str) -> list[Learnt]:
    """turn -> batch -> update -> checkpoint -> deployment, in one query."""
    return _learnt("sample.turn_ref = %s", [turn_id])


def checkpoints_of_user(user_hash: str) -> list[Learnt]:
    """Everything that learnt from this person's turns, in one query; `user_hash` as BatchSample stores it."""
    return _learnt("sample.user_hash = %s", [user_hash])


def turns_of_checkpoint(checkpoint: Checkpoint) -> list[str]:
    """The other way: turns the checkpoint and its ancestors learnt from, oldest batch first, each once."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH RECURSIVE line AS (
              SELECT id, parent_id FROM registry_checkpoint WHERE id = %s
              UNION ALL
              SELECT above.id, above.parent_id FROM registry_checkpoint above JOIN line ON above.id = line.parent_id)
            SELECT sample.turn_ref FROM line
            JOIN rl_online_updaterun run ON run.checkpoint_id = line.id
            JOIN rl_online_batchsample sample ON sample.batch_id = run.batch_id
            ORDER BY run.version, sample.id
            """,
            [checkpoint.id],
        )
        return list(dict.fromkeys(turn for (turn,) in cursor.fetchall()))


def _learnt(condition: str, values: Sequence[Any]) -> list[Learnt]:
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            SELECT sample.turn_ref, batch.digest, sample.reward, sample.is_correction, run.id, run.state,
                   checkpoint.version, checkpoint.state, coalesce(run.state = 'promoted', false)
            FROM rl_online_batchsample sample
            JOIN rl_online_rewardbatch batch ON batch.id = sample.batch_id
            JOIN rl_online_updaterun run ON run.batch_id = batch.id
            LEFT JOIN registry_checkpoint checkpoint ON checkpoint.id = run.checkpoint_id
            WHERE sample.project_id = %s AND {condition}
            ORDER BY run.version, sample.id
            """,  # noqa: S608 - `condition` is one of the two literals above
            [current_project_id(), *values],
        )
        return [
            Learnt(
                turn=row[0],
                batch=row[1],
                reward=row[2],
                is_correction=row[3],
                run=row[4],
                run_state=row[5],
                version=row[6],
                checkpoint_state=row[7],
                was_deployed=row[8],
            )
            for row in cursor.fetchall()
        ]


def loop_seconds(run: UpdateRun, *, now: datetime) -> float:
    """How long the loop has taken, or took, from the sealed batch to the decision."""
    return ((run.finished_at or now) - run.created_at).total_seconds()


STAGES = ("wait", "seal", "train", "publish", "prove", "swap")


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage of several rounds."""

    name: str
    median_s: float | None  # None: no round says how long it took
    num_rounds: int  # that say it


def stage_medians(rounds: Sequence[UpdateRun]) -> list[Stage]:
    """Where the time of these rounds went, stage by stage; a stage that none of them timed is unknown, not 0."""
    found = []
    for name in STAGES:
        times = sorted(run.timings[name] for run in rounds if name in run.timings)
        found.append(Stage(name=name, median_s=statistics.median(times) if times else None, num_rounds=len(times)))
    return found
