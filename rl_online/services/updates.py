"""Starting, cancelling and replaying updates, by the loop's own rhythm or by a person.

Inside a tenant, except the job handlers and `consider_all`.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from jobs import crash
from jobs.models import Job, JobState
from jobs.services import ClaimedJob, NotYet, enqueue
from registry.budgets import stopped
from registry.errors import Conflict, InvalidInput, NotFound, Unavailable
from registry.models import Budget, Checkpoint, Deployment, Policy
from registry.services import LOOP, all_projects, audit, lineage, parse_checkpoint_name
from registry.tenancy import tenant
from rl_online.collecting import line_of, num_unspent
from rl_online.models import OPEN_STATES, LearningPlan, UpdateKind, UpdateRun, UpdateState
from rl_online.rewards.batch import Batch, CorruptBatch, read_batch
from rl_online.rewards.update_config import UpdateConfig
from rl_online.services import runs, sealing
from rl_online.services.corpora import fail_abandoned_corpora
from rl_online.services.estimates import Estimate, estimate, estimate_stage
from rl_online.services.sealing import TooFewSamples
from rl_online.services.stages.stage import Ask, Ready, Stage
from rl_online.services.stages.starting import ask, prepare_stage
from rl_online.services.stages.table import find_stage, fits_as_update, folders_of
from rl_online.training.errors import ContradictoryUpdate
from rl_online.training.refusals import refuse_contradictions, refuse_teacher
from rl_online.training.samples import select_samples
from rl_online.training.teaching import with_teaching
from rl_online.triggering import Rhythm, Situation, Trigger, decide_trigger

CONSIDER_JOB = "rl_online.consider"
SEAL_JOB = "rl_online.seal_batch"
ONLINE_KINDS = (None, UpdateKind.ONLINE, sealing.RL, sealing.KTO)
ENGINE_AWAY_S = 5
LOOK_AGAIN_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What an update would take, were it started now."""

    kind: str  # rl | kto | the kind of a stage
    num_ready: int  # turns, or what the stage counts
    num_needed: int  # fewer are never trained on
    num_excluded: dict[str, int]  # reason -> how many are left out
    config: UpdateConfig
    trigger: Trigger
    options: dict[str, Any] = field(default_factory=dict)  # of the stage, each with its value
    sources: dict[str, int] = field(default_factory=dict)  # of a stage: what they are made of -> how many


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """How far the update is that the loop starts by itself."""

    num_ready: int  # at most as many as make it due: there may be more
    trigger: Trigger


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A preview with what it would take."""

    preview: Preview
    estimate: Estimate


def readiness(policy: Policy) -> Readiness:
    """As `preview_update` of an rl update counts it, without what it would leave out."""
    pool = sealing.look_at_turns(policy)
    return Readiness(num_ready=len(pool.candidates), trigger=_trigger(policy, pool, len(pool.candidates)))


def preview_update(
    policy: Policy,
    *,
    overrides: Mapping[str, Any] | None = None,
    kind: str | None = None,
    options: Mapping[str, object] | None = None,
) -> Preview:
    return forecast_update(policy, overrides=overrides, kind=kind, options=options).preview


def forecast_update(
    policy: Policy,
    *,
    overrides: Mapping[str, Any] | None = None,
    kind: str | None = None,
    options: Mapping[str, object] | None = None,
) -> Forecast:
    """Arguments as of `trigger_update`. Raises InvalidInput."""
    if (stage := _stage(kind, options)) is not None:
        asked = ask(stage, policy, options=options, overrides=overrides)
        ready = stage.look(asked)
        return Forecast(preview=_stage_preview(stage, asked, ready), estimate=estimate_stage(stage, asked, ready))
    pool = sealing.look(policy, kind=_loss(kind), overrides=overrides)
    return Forecast(preview=_preview(policy, pool), estimate=estimate(pool))


def nothing_ready(policy: Policy, kind: str, reason: str) -> Forecast:
    """Of a stage that cannot be looked at before it is told more, and why."""
    plan = LearningPlan.objects.get(policy=policy)
    config = sealing.effective_config(plan, find_stage(kind).preset)
    nothing = Estimate(num_samples=0, sources=[], num_tokens=0, num_uncounted=0, seconds=None, cost_usd=None)
    trigger = Trigger(is_due=False, reason=reason)
    return Forecast(
        preview=Preview(kind=kind, num_ready=0, num_needed=1, num_excluded={}, config=config, trigger=trigger),
        estimate=nothing,
    )


def _stage(kind: str | None, options: Mapping[str, object] | None) -> Stage | None:
    """None for the online kind. Raises InvalidInput."""
    if kind not in ONLINE_KINDS:
        return find_stage(str(kind))
    if options:
        raise InvalidInput("online updates have no options; name another kind", field=min(options))
    return None


def _loss(kind: str | None) -> str | None:
    return None if kind == UpdateKind.ONLINE else kind


def _stage_preview(stage: Stage, asked: Ask, ready: Ready) -> Preview:
    return Preview(
        kind=stage.kind,
        num_ready=ready.num_ready,
        num_needed=ready.num_needed,
        num_excluded=ready.num_excluded,
        config=asked.config,
        trigger=Trigger(is_due=False, reason=f"{stage.title} starts only when a person asks"),
        options=dict(asked.options),
        sources=ready.sources,
    )


def _preview(policy: Policy, pool: sealing.Pool) -> Preview:
    num_ready = sum(not one.is_correction for one in pool.candidates)
    trigger = _trigger(policy, pool, num_ready)
    if pool.kind == sealing.KTO:
        trigger = Trigger(is_due=False, reason="turns without logprobs are learnt from only when a person asks")
    return Preview(
        kind=pool.kind,
        num_ready=num_ready,
        num_needed=pool.plan.min_turns,
        num_excluded=pool.dropped,
        config=pool.config,
        trigger=trigger,
    )


def trigger_update(
    policy: Policy,
    *,
    actor: str,
    overrides: Mapping[str, Any] | None = None,
    kind: str | None = None,
    options: Mapping[str, object] | None = None,
) -> UpdateRun:
    """Start an update now, paused or not.

    `kind` is that of a stage, or of an online update `rl` or `kto`; None or `online` lets its turns decide. `overrides`
    are fields of UpdateConfig, `options` those of the stage.
    Raises TooFewSamples, UpdateUnderWay, or InvalidInput for settings that do not fit the samples.
    """
    stage = _stage(kind, options)
    _refuse_second(policy)
    if stage is not None:
        prepared = prepare_stage(stage, ask(stage, policy, options=options, overrides=overrides))
    else:
        prepared = sealing.prepare(sealing.look(policy, kind=_loss(kind), overrides=overrides), policy.project_id)
    if fits_as_update(prepared.update_kind):
        batch = Batch(digest=prepared.sealed.digest, samples=prepared.samples)
        has_teacher = "teacher" in folders_of(prepared.update_kind, prepared.inputs)
        _refuse_misfit(batch, prepared.parent, prepared.config, has_teacher=has_teacher)
    return sealing.open_update(prepared, trigger="person", requested_by=actor)


def replay_update(run: UpdateRun, *, actor: str, overrides: Mapping[str, Any] | None = None) -> UpdateRun:
    """Learn from the batch of an earlier run once more, from the checkpoint that serves now. Marked as a replay.

    Raises UpdateUnderWay, Conflict for a batch that nothing was learnt from (its turns are in the next one), or
    InvalidInput for settings that do not fit it. A folder that cannot be read is left to the updater, which says why.
    """
    _refuse_second(run.policy)
    plan = LearningPlan.objects.get(policy=run.policy)
    config = sealing.effective_config(plan, {**run.config, **(overrides or {})})
    serving = Deployment.objects.select_related("checkpoint").get(policy=run.policy, alias="default").checkpoint
    sealing.lock_for_update(run.policy, parent=serving)
    run.batch.refresh_from_db()
    if run.batch.files_deleted_at is not None:
        raise Conflict(f"the files of {run.batch} were deleted ({run.batch.files_deleted_reason})")
    if UpdateKind(run.kind).spends_turns and not run.batch.samples.exists():
        raise Conflict(f"the turns of {run.batch} were given back; start a new update")
    if fits_as_update(run.kind):
        with suppress(CorruptBatch):
            batch = read_batch(settings.HOME.batches / run.batch.digest)
            _refuse_misfit(batch, serving, config, has_teacher="teacher" in folders_of(run.kind, run.inputs))
    return sealing.create_run(
        run.batch,
        parent=serving,
        config=config,
        trigger="replay",
        requested_by=actor,
        timings={},
        kind=run.kind,
        options=run.options,
        inputs=run.inputs,
        is_replay=True,
    )


def find_update(text: str) -> UpdateRun:
    """By what it makes, `editor@3`, also where it made nothing. Raises InvalidInput or NotFound."""
    name, version = parse_checkpoint_name(text)
    found = UpdateRun.objects.select_related("policy", "batch").filter(policy__name=name, version=version).first()
    if found is None:
        raise NotFound(f"no update to {text!r} in this project", field="update")
    return found


def cancel_update(run: UpdateRun, *, actor: str, reason: str = "") -> None:
    """A queued run ends at once, one in training at its next step; raises Conflict when it is past that."""
    current = UpdateRun.objects.select_for_update().get(id=run.id)
    if current.state not in (UpdateState.QUEUED, UpdateState.TRAINING):
        raise Conflict(f"{current} is {current.state}; only a queued or training one can be cancelled")
    current.is_cancel_requested = True
    current.save(update_fields=["is_cancel_requested"])
    audit("cancel", "update", run.id, actor=actor, reason=reason)
    if current.state == UpdateState.QUEUED:
        runs.end(run.id, UpdateState.CANCELLED)


def consider(policy: Policy) -> Trigger:
    """Start sealing when it is time. Raises nothing when it is not."""
    if reason := _why_not(policy):
        return Trigger(is_due=False, reason=reason)
    trigger = readiness(policy).trigger
    if trigger.is_due:
        enqueue(SEAL_JOB, project_id=policy.project_id, payload={"policy": str(policy.id)}, key=str(policy.id))
    return trigger


def _why_not(policy: Policy) -> str | None:
    """A few counts instead of reading every waiting turn, which is asked for every two seconds and at every label.

    A reason only where the whole look would say no: too few turns wait, an update is under way, or the last look said
    no and all that it rests on is as it was. A reviewer's step changes none of these counts, so a look is due now and
    then all the same.
    """
    plan = LearningPlan.objects.get(policy=policy)
    last = UpdateRun.objects.filter(policy=policy).order_by("-created_at").first()
    if plan.is_paused:
        return "learning is paused"
    if reason := stopped(Budget.Kind.TRAINING):
        return reason
    if last is not None and last.state in OPEN_STATES:
        return "an update is under way"
    deployment = Deployment.objects.select_related("checkpoint").get(policy=policy, alias="default")
    line = line_of(policy, deployment.checkpoint)
    waiting = num_unspent(line, max_lag=sealing.effective_config(plan).max_lag, at_most=4 * plan.max_turns)
    wanted = plan.every_turns if plan.every_minutes is None else plan.min_turns
    if waiting < wanted:
        return f"{waiting} of {wanted} labelled turns are there"
    rests_on = (waiting, plan.updated_at, deployment.fence, last and (last.id, last.state))
    known, looked_at = _vain_looks.get(policy.id, (None, 0.0))
    if known == rests_on and time.monotonic() - looked_at < LOOK_AGAIN_S:
        return "nothing has changed since the last look"
    _vain_looks[policy.id] = (rests_on, time.monotonic())
    return None


_vain_looks: dict[UUID, tuple[object, float]] = {}  # policy -> (what its last look rested on, when it was)


def consider_job(job: ClaimedJob) -> None:
    assert job.project_id is not None
    with job.effect(), tenant(job.project_id):
        consider(Policy.objects.get(id=job.payload["policy"]))


def seal_job(job: ClaimedJob) -> None:
    """Seal what is ready and start the update; what is no longer due is not an error."""
    project_id = job.project_id
    assert project_id is not None
    with tenant(project_id):
        policy = Policy.objects.get(id=job.payload["policy"])
        pool = sealing.look(policy, kind=sealing.RL)
        num_ready = sum(not one.is_correction for one in pool.candidates)
        if not _trigger(policy, pool, num_ready).is_due:
            return
        try:
            prepared = sealing.prepare(pool, project_id)
        except TooFewSamples:
            return
        except Unavailable as error:
            raise NotYet(ENGINE_AWAY_S, error.message) from error
    crash.point("task.rl_online.seal_batch.mid")
    try:
        with job.effect(), tenant(project_id):
            sealing.open_update(prepared, trigger="schedule", requested_by=LOOP)
    except Conflict:
        return  # a person was quicker, or the line moved; the next look decides anew


def consider_all() -> None:
    """Every plan's clock: updates due by time, and runs and corpora whose job has been given up."""
    for project in all_projects():
        with tenant(project.id):
            for plan in LearningPlan.objects.select_related("policy").filter(is_paused=False):
                consider(plan.policy)
            fail_abandoned()
            fail_abandoned_corpora()


def fail_abandoned() -> None:
    """Runs whose job is in quarantine have failed; the job's last error says why."""
    for run in UpdateRun.objects.filter(state__in=OPEN_STATES):
        jobs = Job.objects.filter(project_id=run.project_id, payload__run=str(run.id)).exclude(state=JobState.DONE)
        job = jobs.filter(state=JobState.QUARANTINED).order_by("-id").first()
        alive = jobs.filter(state__in=[JobState.QUEUED, JobState.RUNNING]).exists()
        if job is not None and not alive:
            runs.end(run.id, UpdateState.FAILED, error=job.last_error[-4000:])


def turns_settled(project_id: UUID) -> None:
    """Called in the transaction that labelled turns: look at each plan soon."""
    for policy_id in LearningPlan.objects.filter(is_paused=False).values_list("policy_id", flat=True):
        enqueue(CONSIDER_JOB, project_id=project_id, payload={"policy": str(policy_id)}, key=str(policy_id))


def _refuse_second(policy: Policy) -> None:
    if UpdateRun.objects.filter(policy=policy, state__in=OPEN_STATES).exists():
        raise sealing.UpdateUnderWay(f"an update of {policy.name} is under way")


def _refuse_misfit(batch: Batch, parent: Checkpoint, config: UpdateConfig, *, has_teacher: bool) -> None:
    """The updater would refuse it as well, but a person who waits is told at once and no turn is spent."""
    versions = sorted(one.version for one in lineage(parent))
    selection = with_teaching(select_samples(batch, config, versions), batch, config, has_teacher=has_teacher)
    try:
        refuse_contradictions(batch, selection.samples, config)
        refuse_teacher(selection.samples, config, has_teacher=has_teacher)
    except ContradictoryUpdate as error:
        raise InvalidInput(str(error)) from error


def _trigger(policy: Policy, pool: sealing.Pool, num_ready: int) -> Trigger:
    if reason := stopped(Budget.Kind.TRAINING):
        return Trigger(is_due=False, reason=reason)
    plan = pool.plan
    last = UpdateRun.objects.filter(policy=policy, kind=UpdateKind.ONLINE).order_by("-created_at").first()
    situation = Situation(
        num_ready=num_ready,
        oldest_ready_at=pool.oldest_at,
        last_update_at=last.created_at if last else None,
        is_paused=plan.is_paused,
        is_updating=UpdateRun.objects.filter(policy=policy, state__in=OPEN_STATES).exists(),
        now=timezone.now(),
    )
    rhythm = Rhythm(every_turns=plan.every_turns, every_minutes=plan.every_minutes, min_turns=plan.min_turns)
    return decide_trigger(situation, rhythm)
