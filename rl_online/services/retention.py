"""Deleting files that nothing needs any more: weights, optimizer state, deltas, batches. Rows stay and say so.

Decided under the locks that a promotion, a rollback and a new update take, written to the rows, and only then done: a
collection that was killed is finished by the next. What an engine holds, what serves or may serve next, and what an
update or a gate works with is never touched. Not here: which ones, by number (rl_online.retention), and the deleting
(services.disposal).
"""

import logging
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.utils import timezone

from evals.models import EvalRun, RunState
from jobs import crash
from jobs.services import ClaimedJob, enqueue
from registry.errors import Conflict
from registry.models import AuditEvent, Checkpoint, CheckpointState, Deployment, Policy
from registry.services import LOOP, all_projects, audit, project_settings
from registry.tenancy import tenant
from rl_online.models import (
    OPEN_STATES,
    Corpus,
    CorpusState,
    EngineHolding,
    LearningPlan,
    RewardBatch,
    RewardModel,
    UpdateKind,
    UpdateRun,
    UpdateState,
)
from rl_online.retention import Choice, Version, choose
from rl_online.services.corpora import OPEN as OPEN_CORPORA
from rl_online.services.corpora import folder_of_corpus
from rl_online.services.disposal import Paths, Report, dispose
from rl_online.services.holdings import REPORT_HOLDS_FOR, first_checkpoint
from rl_online.services.plans import deltas_folder, folder_of
from rl_online.services.reward_models import folder_of_reward_model

log = logging.getLogger(__name__)

RETENTION_JOB = "rl_online.retention"
LOCK = 0x5354524F50  # advisory; backups share it (strop.backup.make)
EVERY = timedelta(days=6.5)  # weekly, asked once a day
VERB = "collect"


def collect(project_id: UUID, *, actor: str, report: Report) -> None:
    """Delete what this project's settings let go of; a dry run only tells. Raises Conflict while a backup runs."""
    with tenant(project_id):
        policies = list(Policy.objects.order_by("created_at"))
    for policy in policies:
        with tenant(project_id):
            _alone()
            choice = _choose(policy)
            gone = _let_go_of_checkpoints(policy, choice, actor=actor, report=report)
            batches = _let_go_of_batches(policy, choice, actor=actor, report=report)
            paths = [*_paths(policy, choice, gone), *_batch_paths(batches)]
        crash.point("gc.after_rows")
        for kind, path in paths:
            dispose(kind, path, report)
    with tenant(project_id):
        _alone()
        corpora = _let_go_of_corpora(actor=actor, report=report)
        reward_models = _let_go_of_reward_models(actor=actor, report=report)
    for path in corpora:
        dispose("corpora", path, report)
    for path in reward_models:
        dispose("reward models", path, report)
    if not report.is_dry_run:
        with tenant(project_id):
            audit(VERB, "files", "retention", actor=actor, after={"bytes": report.num_bytes, "deleted": report.deleted})


def ask_weekly() -> None:
    """Called once a day: a job for each project whose last collection is a week ago, where the setting is on."""
    for project in all_projects():
        with tenant(project.id):
            if not project_settings(project.id).collect_weekly:
                continue
            last = last_collected_at()
            if last is None or last < timezone.now() - EVERY:
                enqueue(RETENTION_JOB, project_id=project.id, key=str(project.id))


def last_collected_at() -> datetime | None:
    """Inside a tenant."""
    events = AuditEvent.objects.filter(verb=VERB, object_kind="files").order_by("-at")
    return events.values_list("at", flat=True).first()


def retention_job(job: ClaimedJob) -> None:
    assert job.project_id is not None
    report = Report(is_dry_run=False)
    collect(job.project_id, actor=LOOP, report=report)
    log.info("retention freed %d bytes", report.num_bytes)


def pin(checkpoint: Checkpoint, *, is_pinned: bool, actor: str, reason: str = "") -> None:
    """Keep its files whatever the settings say, or no longer. Raises Conflict when they are gone already."""
    found = Checkpoint.objects.select_for_update(of=("self",)).select_related("policy").get(pk=checkpoint.pk)
    if is_pinned and found.files_deleted_at is not None:
        raise Conflict(f"the files of {found} are deleted; strop gc --rebuild {found} may bring them back")
    if found.is_pinned != is_pinned:
        Checkpoint.objects.filter(pk=found.pk).update(is_pinned=is_pinned)
        audit("pin" if is_pinned else "unpin", "checkpoint", found, actor=actor, reason=reason)


def _alone() -> None:
    """For the rest of the transaction no backup copies files and no other collection decides. Raises Conflict."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK])
        if not cursor.fetchone()[0]:
            raise Conflict("a backup or another collection is under way; try again when it is over")


def _choose(policy: Policy) -> Choice:
    """Under the plan's and the deployments' locks, so that nothing is promoted, rolled back or started meanwhile."""
    list(LearningPlan.objects.select_for_update().filter(policy=policy))
    deployments = list(Deployment.objects.select_for_update().filter(policy=policy))
    wanted = project_settings(policy.project_id)
    checkpoints = list(Checkpoint.objects.select_related("parent").filter(policy=policy).order_by("version"))
    needs = _needs(policy, checkpoints, deployments)
    deltas = {path.name.split("-")[0] for path in deltas_folder(policy.id).glob("*-from-*.json")}
    return choose(
        [
            Version(
                number=one.version,
                parent=one.parent.version if one.parent else None,
                has_files=one.files_deleted_at is None,
                needed_for=needs.get(one.id, ""),
                has_delta=f"{one.version:06d}" in deltas,
            )
            for one in checkpoints
        ],
        newest=max(1, int(wanted.keep_checkpoints)),
        rebuildable=max(1, int(wanted.keep_rebuildable)),
    )


def _needs(policy: Policy, checkpoints: list[Checkpoint], deployments: list[Deployment]) -> dict[UUID, str]:
    """Checkpoint -> what needs its files; the first reason found is the one told."""
    if not checkpoints:
        return {}
    found: dict[UUID, str] = {}

    def need(checkpoint_id: UUID | None, why: str) -> None:
        if checkpoint_id is not None:
            found.setdefault(checkpoint_id, why)

    parents = {one.id: one.parent_id for one in checkpoints}
    for deployment in deployments:
        need(deployment.checkpoint_id, "serving")
        need(deployment.previous_id, "served before")
        need(parents.get(deployment.checkpoint_id), "what a rollback returns to")
        need(deployment.canary_id, "canary")
    need(first_checkpoint(policy.id).id, "the first, which the gate compares with")
    open_runs = UpdateRun.objects.filter(policy=policy, state__in=[*OPEN_STATES, UpdateState.WAITING])
    for run in open_runs:
        need(run.parent_id, "an update learns from it")
        need(run.checkpoint_id, "at the gate" if run.state == UpdateState.PROVING else "waits for a person")
    candidates = [one for one in checkpoints if one.state in (CheckpointState.CANDIDATE, CheckpointState.CANARY)]
    if candidates:
        need(candidates[-1].id, "the newest candidate")
    names = {f"{policy.name}@{one.version}": one.id for one in checkpoints}
    for run in UpdateRun.objects.filter(state__in=OPEN_STATES, inputs__teacher__in=list(names)):
        need(names[run.inputs["teacher"]], "an update learns from it as a teacher")
    for name in EvalRun.objects.filter(state=RunState.RUNNING, checkpoint__in=names).values_list(
        "checkpoint", flat=True
    ):
        need(names[name or ""], "being measured")
    for corpus in Corpus.objects.filter(made_for__policy=policy, state__in=OPEN_CORPORA):
        need(corpus.made_for_id, "a corpus is made with its tokenizer")
    held = EngineHolding.objects.filter(
        checkpoint__policy=policy, reported_at__gt=timezone.now() - REPORT_HOLDS_FOR
    ).values_list("checkpoint_id", flat=True)
    for checkpoint_id in held:
        need(checkpoint_id, "an engine holds it")
    for one in checkpoints:
        if one.is_pinned:
            need(one.id, "pinned")
    return found


def _let_go_of_checkpoints(policy: Policy, choice: Choice, *, actor: str, report: Report) -> list[Checkpoint]:
    """Write the decision to the rows; returns every checkpoint whose files have to go, also from before."""
    report.kept |= {f"{policy.name}@{number}": why for number, why in choice.keep.items()}
    rows = Checkpoint.objects.select_related("policy").filter(policy=policy)
    going = list(rows.filter(version__in=choice.delete))
    report.deleted += [str(one) for one in going]
    if report.is_dry_run:
        return going
    reason = "older than what the project keeps"
    rows.filter(pk__in=[one.pk for one in going]).update(files_deleted_at=timezone.now(), files_deleted_reason=reason)
    for one in going:
        audit("delete files", "checkpoint", one, actor=actor, reason=reason)
    return list(rows.filter(files_deleted_at__isnull=False))


def _let_go_of_batches(policy: Policy, choice: Choice, *, actor: str, report: Report) -> list[RewardBatch]:
    """As for checkpoints: kept are the newest, what a kept checkpoint learnt, and what an update works with."""
    newest = max(1, int(project_settings(policy.project_id).keep_batches))
    rows = RewardBatch.objects.filter(policy=policy)
    kept = set(rows.order_by("-created_at").values_list("pk", flat=True)[:newest])
    runs = UpdateRun.objects.filter(policy=policy)
    kept |= set(runs.filter(state__in=[*OPEN_STATES, UpdateState.WAITING]).values_list("batch_id", flat=True))
    kept |= set(runs.filter(checkpoint__version__in=choice.keep).values_list("batch_id", flat=True))
    going = list(rows.filter(files_deleted_at__isnull=True).exclude(pk__in=kept))
    report.deleted += [str(one) for one in going]
    if report.is_dry_run:
        return going
    reason = "older than what the project keeps"
    rows.filter(pk__in=[one.pk for one in going]).update(files_deleted_at=timezone.now(), files_deleted_reason=reason)
    for one in going:
        audit("delete files", "batch", one.digest, actor=actor, reason=reason)
    return list(rows.filter(files_deleted_at__isnull=False))


def _let_go_of_corpora(*, actor: str, report: Report) -> list[Path]:
    """Of each name its newest is kept, and what an update works with; folders that have to go, also from before."""
    names = list(Corpus.objects.select_for_update().filter(state=CorpusState.READY).order_by("name", "-version"))
    runs = UpdateRun.objects.filter(state__in=[*OPEN_STATES, UpdateState.WAITING], kind=UpdateKind.MIDTRAIN)
    in_use = set(runs.values_list("inputs__corpus", flat=True))
    newest = {one.name: one.pk for one in reversed(names) if one.files_deleted_at is None}
    kept = {one.digest for one in names if one.pk == newest.get(one.name) or one.digest in in_use}
    going = [one for one in names if one.digest not in kept and one.files_deleted_at is None]
    report.deleted += [f"corpus {one}" for one in going]
    if not report.is_dry_run:
        reason = "a newer one has its name"
        rows = Corpus.objects.filter(pk__in=[one.pk for one in going])
        rows.update(files_deleted_at=timezone.now(), files_deleted_reason=reason)
        for one in going:
            audit("delete files", "corpus", one, actor=actor, reason=reason)
    gone = {one.digest: one for one in names if one.digest not in kept and (one in going or one.files_deleted_at)}
    return [folder for one in gone.values() if _is_left(folder := folder_of_corpus(one), one.files_deleted_at)]


def _let_go_of_reward_models(*, actor: str, report: Report) -> list[Path]:
    """Of each policy and part of the people the newest is kept, and whom an update is trained against or watched by."""
    rows = list(
        RewardModel.objects.select_for_update(of=("self",)).select_related("policy", "run").order_by("created_at")
    )
    runs = UpdateRun.objects.filter(state__in=[*OPEN_STATES, UpdateState.WAITING], kind=UpdateKind.PPO)
    kept = {str(name) for run in runs for name in run.inputs.values()}
    kept |= {str(pk) for pk in {(one.policy_id, one.part): one.pk for one in rows}.values()}
    going = [one for one in rows if str(one.pk) not in kept and one.files_deleted_at is None]
    report.deleted += [str(one) for one in going]
    if not report.is_dry_run:
        reason = "a newer one judges for the same people"
        going_rows = RewardModel.objects.filter(pk__in=[one.pk for one in going])
        going_rows.update(files_deleted_at=timezone.now(), files_deleted_reason=reason)
        for one in going:
            audit("delete files", "reward model", one.pk, actor=actor, reason=reason)
    gone = [one for one in rows if one in going or one.files_deleted_at]
    return [folder for one in gone if _is_left(folder := folder_of_reward_model(one), one.files_deleted_at)]


def _paths(policy: Policy, choice: Choice, gone: list[Checkpoint]) -> Paths:
    """(kind, folder or file) of what this policy no longer needs and still has on disk."""
    found: Paths = [("checkpoints", folder_of(one)) for one in gone if _is_left(folder_of(one), one.files_deleted_at)]
    root = deltas_folder(policy.id).parent
    resumable = {f"v{number:06d}" for number in _resumable(policy)}
    found += [("train", path) for path in sorted((root / "train").glob("v*")) if path.name not in resumable]
    staying = {f"{number:06d}" for number in choice.deltas} | _being_made(policy)
    for path in sorted((root / "deltas").glob("*-from-*")):
        if path.name.split("-")[0] not in staying:
            found.append(("deltas", path))
    return found


def _resumable(policy: Policy) -> set[int]:
    """Versions whose optimizer state is kept: serving, its predecessors, the newest candidate, and open updates'."""
    found: set[int] = set()
    for deployment in Deployment.objects.select_related("checkpoint__parent", "previous", "canary").filter(
        policy=policy
    ):
        parents = (deployment.checkpoint, deployment.checkpoint.parent, deployment.previous, deployment.canary)
        found |= {one.version for one in parents if one is not None}
    for run in UpdateRun.objects.select_related("parent").filter(
        policy=policy, state__in=[*OPEN_STATES, UpdateState.WAITING]
    ):
        found |= {run.version, run.parent.version}
    newest = Checkpoint.objects.filter(policy=policy, state=CheckpointState.CANDIDATE).order_by("-version").first()
    return found | ({newest.version} if newest else set())


def _being_made(policy: Policy) -> set[str]:
    runs = UpdateRun.objects.filter(policy=policy, state__in=OPEN_STATES)
    return {f"{version:06d}" for version in runs.values_list("version", flat=True)}


def _batch_paths(gone: list[RewardBatch]) -> Paths:
    """Folders are named by content, so another project's row may mean the same one."""
    found: Paths = []
    for batch in gone:
        folder = settings.HOME.batches / batch.digest
        if _is_left(folder, batch.files_deleted_at) and not _is_wanted_elsewhere(batch):
            found.append(("batches", folder))
    return found


def _is_left(folder: Path, deleted_at: datetime | None) -> bool:
    """On disk, and not written anew since the decision: a batch or a corpus may be made again of the same."""
    return folder.is_dir() and (deleted_at is None or folder.stat().st_mtime < deleted_at.timestamp())


def _is_wanted_elsewhere(batch: RewardBatch) -> bool:
    for project in all_projects():
        with tenant(project.id):
            same = RewardBatch.objects.filter(digest=batch.digest, files_deleted_at__isnull=True)
            if same.exclude(pk=batch.pk).exists():
                return True
    return False
