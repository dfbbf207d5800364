"""Trying an update on a few of the samples it would take: the updater trains them for real and keeps nothing.

No batch, no version, no turn spent. The training is handed in as a function, so this stays free of torch.
"""

import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from jobs.services import ClaimedJob, enqueue
from registry.errors import Conflict, NotFound, StropError
from registry.models import Deployment, Policy
from registry.services import audit, lineage
from registry.tenancy import tenant
from rl_online.collecting import Candidate
from rl_online.models import DryRun, DryRunState
from rl_online.services import sealing
from rl_online.services.holdings import first_checkpoint
from rl_online.services.plans import folder_of
from rl_online.services.sealing import Prepared, TooFewSamples
from rl_online.services.stages.stage import spread as evenly
from rl_online.services.stages.starting import ask, prepare_stage
from rl_online.services.stages.table import STAGES, folders_of
from rl_online.services.updater import Cancelled, Hopeless
from rl_online.services.updates import preview_update

log = logging.getLogger(__name__)

DRY_RUN_JOB = "rl_online.dry_run"
NUM_SAMPLES = 8
OPEN = (DryRunState.QUEUED, DryRunState.RUNNING)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """All that trying needs to know."""

    parent_folder: Path
    base_folder: Path
    batch_folder: Path
    lineage: tuple[int, ...]
    seed: int
    config: Mapping[str, Any]
    kind: str  # of UpdateKind
    inputs: Mapping[str, Any]  # see UpdateRun
    folders: Mapping[str, Path]  # where those inputs lie that are folders


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What was seen."""

    steps: Sequence[Mapping[str, float]]
    load_s: float
    seconds: float
    tokens_per_s: float
    peak_bytes: int | None
    device: str


Try = Callable[[Trial, Callable[[], bool]], Tried]  # what to try, whether to stop


def start_dry_run(
    policy: Policy,
    *,
    actor: str,
    overrides: Mapping[str, Any] | None = None,
    kind: str | None = None,
    options: Mapping[str, object] | None = None,
) -> DryRun:
    """Ask the updater; arguments as of `updates.trigger_update`.

    Raises TooFewSamples when there is nothing to try, Conflict when one is under way.
    """
    preview = preview_update(policy, kind=kind, overrides=overrides, options=options)
    if not preview.num_ready:
        unit = STAGES[preview.kind].unit if preview.kind in STAGES else "labelled turns"
        raise TooFewSamples(f"no {unit} ready; one is enough for a dry run")
    serving = Deployment.objects.select_related("checkpoint").get(policy=policy, alias="default").checkpoint
    try:
        with transaction.atomic():
            row = DryRun.objects.create(
                policy=policy,
                parent=serving,
                kind=preview.kind,
                options=preview.options,
                requested_by=actor,
                config=preview.config.to_json(),
            )
    except IntegrityError as error:
        raise Conflict(f"a dry run of {policy.name} is under way") from error
    audit("start", "dry run", row.id, actor=actor, after={"policy": policy.name, "kind": preview.kind})
    enqueue(DRY_RUN_JOB, project_id=row.project_id, payload={"dry_run": str(row.id)}, key=str(row.id))
    return row


def cancel_dry_run(row: DryRun, *, actor: str) -> None:
    """Over at once; the updater notices before its next step. Raises Conflict when it is over already."""
    changed = DryRun.objects.filter(id=row.id, state__in=OPEN).update(
        state=DryRunState.CANCELLED, finished_at=timezone.now()
    )
    if not changed:
        raise Conflict("this dry run is over")
    audit("cancel", "dry run", row.id, actor=actor)


def find_dry_run(dry_run_id: UUID) -> DryRun:
    """Raises NotFound."""
    found = DryRun.objects.select_related("policy", "parent__policy").filter(id=dry_run_id).first()
    if found is None:
        raise NotFound("no such dry run")
    return found


def dry_run_job(job: ClaimedJob, try_samples: Try, *, beat: Callable[[], None]) -> None:
    """Handle one `rl_online.dry_run` job in the updater. What goes wrong is an answer, not a reason to try again."""
    project_id, row_id = job.project_id, UUID(job.payload["dry_run"])
    assert project_id is not None
    beat()
    with tenant(project_id):
        is_wanted = _begin(row_id, is_first=job.attempts == 1)
    if not is_wanted:
        return

    def is_cancelled() -> bool:
        beat()
        with tenant(project_id):
            return not DryRun.objects.filter(id=row_id, state=DryRunState.RUNNING).exists()

    outcome: dict[str, Any]
    try:
        outcome = _try(project_id, row_id, try_samples, is_cancelled)
    except Cancelled:
        outcome = {"state": DryRunState.CANCELLED}
    except (Hopeless, StropError) as error:
        outcome = {"state": DryRunState.FAILED, "error": str(error)}
    except Exception as error:
        log.exception("dry run %s failed", row_id)
        outcome = {"state": DryRunState.FAILED, "error": f"{type(error).__name__}: {error}"[:4000]}
    with job.effect(), tenant(project_id):
        DryRun.objects.filter(id=row_id, state=DryRunState.RUNNING).update(finished_at=timezone.now(), **outcome)


def _begin(row_id: UUID, *, is_first: bool) -> bool:
    rows = DryRun.objects.filter(id=row_id)
    if rows.filter(state=DryRunState.QUEUED).update(state=DryRunState.RUNNING):
        return True
    if not is_first:
        error = "the updater died while it tried these samples; the update itself would end the same way"
        rows.filter(state=DryRunState.RUNNING).update(state=DryRunState.FAILED, error=error, finished_at=timezone.now())
    return False


def _try(project_id: UUID, row_id: UUID, try_samples: Try, is_cancelled: Callable[[], bool]) -> dict[str, Any]:
    """The columns of the finished row."""
    with tempfile.TemporaryDirectory(dir=settings.HOME.batches.parent, prefix=".dry-run-") as scratch:
        with tenant(project_id):
            row = find_dry_run(row_id)
            prepared = _seal_few(row, Path(scratch))
            trial = Trial(
                parent_folder=folder_of(prepared.parent),
                base_folder=folder_of(first_checkpoint(row.policy_id)),
                batch_folder=prepared.sealed.folder,
                lineage=tuple(sorted(checkpoint.version for checkpoint in lineage(prepared.parent))),
                seed=sealing.seed_of(prepared.sealed.digest, 0),
                config=prepared.config.to_json(),
                kind=prepared.update_kind,
                inputs=prepared.inputs,
                folders=folders_of(prepared.update_kind, prepared.inputs),
            )
            DryRun.objects.filter(id=row_id).update(
                parent=prepared.parent,
                num_samples=prepared.sealed.num_samples,
                num_tokens=prepared.sealed.num_tokens,
            )
        tried = try_samples(trial, is_cancelled)
    return {
        "state": DryRunState.DONE,
        "steps": [dict(step) for step in tried.steps],
        "load_s": tried.load_s,
        "seconds": tried.seconds,
        "tokens_per_s": tried.tokens_per_s,
        "peak_bytes": tried.peak_bytes,
        "device": tried.device[:40],
    }


def _seal_few(row: DryRun, root: Path) -> Prepared:
    if row.kind in STAGES:
        stage = STAGES[row.kind]
        asked = ask(stage, row.policy, options=row.options, overrides=row.config)
        return prepare_stage(stage, asked, root=root, at_most=NUM_SAMPLES)
    pool = sealing.look(row.policy, kind=row.kind, overrides=row.config)
    few = replace(pool, candidates=spread(pool.candidates))
    return sealing.prepare(few, row.project_id, root=root, least=1)


def spread(candidates: Sequence[Candidate], *, num: int = NUM_SAMPLES) -> list[Candidate]:
    """A few of the turns, evenly over their time; corrections are left out."""
    return evenly([one for one in candidates if not one.is_correction], num)
