"""An UpdateRun's way through training, as rows: begun, progressing, trained, cancelled, failed.

A run that ends without a checkpoint has taught nothing: its turns are free for the next batch. Only where a run
diverged they stay with their batch, which is in quarantine: nothing learns from it unless a person replays it, and
however a replay ends, the turns stay.
The updater process calls these; the training itself is `rl_online.training`. Inside a tenant.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from jobs.services import enqueue
from registry.models import AuditEvent, Checkpoint, Deployment
from registry.services import LOOP, audit, lineage, register_checkpoint
from rl_online.models import OPEN_STATES, BatchSample, RewardBatch, UpdateKind, UpdateMetric, UpdateRun, UpdateState
from rl_online.services import notices
from rl_online.services.holdings import first_checkpoint
from rl_online.services.plans import checkpoint_folder, deltas_folder, folder_of, pause_learning
from rl_online.services.stages.table import folders_of, register_result

PROVE_JOB = "rl_online.prove"


@dataclass(frozen=True, kw_only=True)
class Order:
    """All that training one run needs to know."""

    run_id: UUID
    policy_id: UUID
    version: int
    parent_version: int
    lineage: tuple[int, ...]  # versions from the first to the parent
    parent_folder: Path
    base_folder: Path
    batch_folder: Path
    out_folder: Path
    deltas_root: Path
    seed: int
    config: Mapping[str, object]
    reward_spec: str
    kind: str  # of UpdateKind
    inputs: Mapping[str, Any]  # see UpdateRun
    folders: Mapping[str, Path]  # what the inputs name, e.g. teacher -> its checkpoint folder


@dataclass(frozen=True, kw_only=True)
class StepRow:
    """One optimizer step as the page shows it."""

    step: int
    num_steps: int
    metrics: Mapping[str, float]
    tokens_per_s: float
    seconds_left: float


def begin(run_id: UUID) -> Order | None:
    """Take the run into training, or again after a crash; None when there is nothing to train any more."""
    run = (
        UpdateRun.objects.select_for_update(of=("self",))
        .select_related("policy", "parent", "batch__reward_spec")
        .get(id=run_id)
    )
    if run.state not in (UpdateState.QUEUED, UpdateState.TRAINING):
        return None
    if run.is_cancel_requested:
        _end(run, UpdateState.CANCELLED)
        return None
    if UpdateKind(run.kind).makes_checkpoint and (reason := superseded(run)):
        _end(run, UpdateState.HELD, error=reason)
        return None
    now = timezone.now()
    if run.state == UpdateState.QUEUED:
        run.state = UpdateState.TRAINING
        run.started_at = now
        run.timings = {**run.timings, "wait": round((now - run.created_at).total_seconds(), 3)}
    run.held = [*run.held, [now.isoformat(), now.isoformat()]]
    run.save(update_fields=["state", "started_at", "timings", "held"])
    return Order(
        run_id=run.id,
        policy_id=run.policy_id,
        version=run.version,
        parent_version=run.parent.version,
        lineage=tuple(sorted(checkpoint.version for checkpoint in lineage(run.parent))),
        parent_folder=folder_of(run.parent),
        base_folder=folder_of(first_checkpoint(run.policy_id)),
        batch_folder=settings.HOME.batches / run.batch.digest,
        out_folder=checkpoint_folder(run.policy_id, run.version),
        deltas_root=deltas_folder(run.policy_id),
        seed=run.seed,
        config=run.config,
        reward_spec=str(run.batch.reward_spec),
        kind=run.kind,
        inputs=run.inputs,
        folders=folders_of(run.kind, run.inputs),
    )


def record_steps(run_id: UUID, steps: Sequence[StepRow]) -> bool:
    """Write finished steps, and that the run is still at work; True when it should stop.

    Writing a step again replaces it.
    """
    run = UpdateRun.objects.select_for_update().get(id=run_id)
    if run.held and run.state == UpdateState.TRAINING:
        run.held[-1][1] = timezone.now().isoformat()
        run.save(update_fields=["held"])
    if steps and run.state == UpdateState.TRAINING:
        UpdateMetric.objects.bulk_create(
            [UpdateMetric(run=run, step=one.step, values=dict(one.metrics)) for one in steps if one.metrics],
            update_conflicts=True,
            unique_fields=["run", "step"],
            update_fields=["values"],
        )
        last = steps[-1]
        run.step, run.num_steps = last.step, last.num_steps
        run.tokens_per_s, run.seconds_left = last.tokens_per_s, last.seconds_left
        run.save(update_fields=["step", "num_steps", "tokens_per_s", "seconds_left"])
    return run.is_cancel_requested or run.state != UpdateState.TRAINING


def finish(
    run_id: UUID, *, tree_digest: str, num_bytes: int, optimizer_step: int, timings: Mapping[str, float]
) -> Checkpoint:
    """Register the trained folder as a candidate, one for each run, and ask for its proof.

    `timings` are those of the last process; what killed ones trained before is added to its `train`.
    """
    run = UpdateRun.objects.select_for_update(of=("self",)).select_related("policy", "parent").get(id=run_id)
    checkpoint = register_checkpoint(
        run.policy,
        version=run.version,
        parent=run.parent,
        tree_digest=tree_digest,
        folder=str(checkpoint_folder(run.policy_id, run.version).relative_to(settings.HOME.checkpoints)),
        num_bytes=num_bytes,
        optimizer_step=optimizer_step,
        actor=LOOP,
        update_run_id=run.id,
    )
    run.checkpoint = checkpoint
    run.state = UpdateState.PROVING
    _record_time(run, timings)
    run.save(update_fields=["checkpoint", "state", "seconds_left", "timings", "held"])
    enqueue(PROVE_JOB, project_id=run.project_id, payload={"run": str(run.id)}, key=str(run.id))
    return checkpoint


def complete(run_id: UUID, *, result: Mapping[str, Any], timings: Mapping[str, float]) -> UpdateRun:
    """Register what a run of a kind without a checkpoint made; it is over. `timings` as of `finish`."""
    run = UpdateRun.objects.select_for_update(of=("self",)).select_related("policy", "parent", "batch").get(id=run_id)
    register_result(run, result)
    run.state = UpdateState.DONE
    run.finished_at = timezone.now()
    _record_time(run, timings)
    run.save(update_fields=["state", "finished_at", "seconds_left", "timings", "held"])
    audit("end", "update", run.id, actor=LOOP, after={"state": run.state, "kind": run.kind})
    return run


def _record_time(run: UpdateRun, timings: Mapping[str, float]) -> None:
    """Nothing is left to train; into the row in memory."""
    run.seconds_left = 0.0
    run.timings = {**run.timings, **timings}
    if run.held:
        *killed, (start, _) = run.held_spans
        run.held[-1][1] = (start + timedelta(seconds=timings["train"])).isoformat()
        before_s = sum((end - begun).total_seconds() for begun, end in killed)
        run.timings["train"] = round(before_s + timings["train"], 3)


def end(run_id: UUID, state: str, *, error: str = "", keeps_turns: bool = False) -> None:
    """Close a run that comes to nothing, cancelled or failed; one that is over stays as it is.

    `keeps_turns` puts its batch in quarantine.
    """
    run = UpdateRun.objects.select_for_update().get(id=run_id)
    if not UpdateState(run.state).is_over:
        _end(run, state, error=error, keeps_turns=keeps_turns)


def superseded(run: UpdateRun) -> str | None:
    """Why the run's parent is no longer what it should learn from; None while it serves."""
    serving = (
        Deployment.objects.select_related("checkpoint__policy").get(policy=run.policy_id, alias="default").checkpoint
    )
    if serving.id == run.parent_id:
        return None
    return f"its parent {run.parent} is no longer serving; {serving} is"


def _end(run: UpdateRun, state: str, *, error: str = "", keeps_turns: bool = False) -> None:
    run.state = state
    run.error = error
    run.finished_at = timezone.now()
    run.seconds_left = None
    run.save(update_fields=["state", "error", "finished_at", "seconds_left"])
    after = {"state": state, "released_turns": 0 if keeps_turns else _release_turns(run)}
    if keeps_turns:
        after["quarantined_batch"] = run.batch.digest
    audit("end", "update", run.id, actor=LOOP, after=after, reason=error)
    if state == UpdateState.FAILED:
        notices.tell_failed(run)
    if state == UpdateState.FAILED and run.trigger == "schedule":
        pause_learning(run.policy, actor=LOOP, reason="an update failed")


def _release_turns(run: UpdateRun) -> int:
    """Free the turns of a batch that no run has learnt from or still may, unless one diverged on it.

    The batch and its folder stay as history.
    """
    runs = UpdateRun.objects.filter(batch=run.batch_id)
    learnt_from = Q(checkpoint__isnull=False) | Q(state__in=[*OPEN_STATES, UpdateState.DONE])
    if runs.filter(learnt_from).exists() or _is_quarantined(run.batch):
        return 0
    return BatchSample.objects.filter(batch=run.batch_id).delete()[0]


def _is_quarantined(batch: RewardBatch) -> bool:
    """Whether any run of it diverged, as the audit log, which nothing changes, has it."""
    runs = [str(found) for found in UpdateRun.objects.filter(batch=batch).values_list("id", flat=True)]
    ended = AuditEvent.objects.filter(at__gte=batch.created_at, verb="end", object_kind="update", object_id__in=runs)
    return ended.filter(after__has_key="quarantined_batch").exists()
