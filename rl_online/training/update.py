"""One update from parent checkpoint and sealed batch to a new checkpoint folder and its delta.

The effects around `apply_update`: load, train, make the optimizer state durable, then the checkpoint, publish.
Killed at any point, the same request goes on from its last snapshot and ends with the same bits; what is already whole
is reused.
"""

import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_online.gate.forgetting import Forgetting
from rl_online.rewards.batch import read_batch
from rl_online.rewards.durable import clear_drafts, new_folder, sync_tree
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.apply import Applied, Hooks, Progress, apply_update, select_credited
from rl_online.training.errors import UpdateCancelled, UpdateDiverged, UpdateFailed
from rl_online.training.forgetting import measure_forgetting
from rl_online.training.local import LocalTrainer
from rl_online.training.memory import reusing_memory
from rl_online.training.scoring import Scorer, base_scorer, frozen_scorer, teacher_folder
from rl_online.training.snapshots import Snapshots, clear_snapshots, snapshots_in
from rl_online.training.state import FORGETTING, state_folder, verify_state, write_state_manifest
from rl_online.training.steps import refuse_idle
from rl_online.training.trainer import Trainer
from rl_online.weights.errors import CorruptCheckpoint
from rl_online.weights.manifest import Manifest, read_manifest, verify_folder, write_manifest
from rl_online.weights.publish import DeltaRef, publish_delta

__all__ = [
    "Progress",
    "UpdateCancelled",
    "UpdateDiverged",
    "UpdateFailed",
    "UpdateRequest",
    "UpdateResult",
    "run_update",
]

METRICS = "metrics.json"
CORPUS = "corpus"  # the folder that is no checkpoint
ORDER = "order.json"  # of each step: the places in the batch of the samples it took


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateRequest:
    """Everything an update depends on; equal requests make equal weights."""

    parent_folder: Path
    batch_folder: Path
    base_folder: Path | None  # frozen reference for KL and KTO; None: KTO takes the parent, and there is no KL
    out_folder: Path  # of the new checkpoint; its optimizer state goes to train/ beside it
    deltas_root: Path
    policy: str
    version: int
    parent_version: int
    seed: int
    device: str  # auto, cpu or cuda
    config: UpdateConfig
    reward_spec: str
    code_version: str
    lineage: tuple[int, ...] = field(default=())
    # versions from the oldest to the parent, for lag; empty: every version up to the parent
    kind: str = "online"  # the stage of training
    inputs: Mapping[str, Any] = field(default_factory=dict)  # what it needs beside the batch, by name
    folders: Mapping[str, Path] = field(default_factory=dict)  # where those inputs lie that are folders
    texts_folder: Path | None = None  # where a set of general texts that is a file lies


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateResult:
    """A finished update."""

    tree_digest: str
    optimizer_step: int  # steps applied along the lineage
    folder: Path
    num_bytes: int  # of the checkpoint folder's files
    delta: DeltaRef
    metrics: dict[str, float]
    train_s: float  # from the first byte read to the last step and a look at general text; 0 where a killed run had
    # left the checkpoint whole
    publish_s: float  # writing the checkpoint and its delta, durably; of an adapter with that look


Learn = Callable[[UpdateRequest, Manifest, Hooks], tuple[Trainer, Applied]]


def run_update(
    request: UpdateRequest,
    *,
    on_progress: Callable[[Progress], None],
    is_cancelled: Callable[[], bool],
    crash: Callable[[str], None],
    learn: Learn | None = None,
) -> UpdateResult:
    """Train, save and publish; or find that this was done already. `learn` is the training itself, without one
    `learn_from_batch`; it is given the parent's manifest.

    Raises UpdateFailed, UpdateCancelled, CorruptBatch, CorruptCheckpoint. None of them leaves a checkpoint folder; a
    cancelled update leaves its last snapshot.
    """
    hooks = Hooks(on_progress=on_progress, is_cancelled=is_cancelled, crash=crash)
    started = time.monotonic()
    trained = started
    parent = verify_folder(request.parent_folder)
    if not request.out_folder.exists():
        with reusing_memory():
            trained = _train(request, parent, hooks, learn or learn_from_batch)
    manifest = _verify_ours(request, parent)
    clear_snapshots(state_folder(request.out_folder))
    metrics = json.loads((state_folder(request.out_folder) / METRICS).read_text("utf-8"))
    delta = publish_delta(
        request.parent_folder, request.out_folder, request.deltas_root, crash=lambda: crash("update.mid_publish")
    )
    crash("update.after_publish")
    return UpdateResult(
        tree_digest=manifest.tree_digest,
        optimizer_step=manifest.optimizer_step,
        folder=request.out_folder,
        num_bytes=sum(row.size for row in manifest.files.values()),
        delta=delta,
        metrics=metrics,
        train_s=trained - started,
        publish_s=time.monotonic() - trained,
    )


def _train(request: UpdateRequest, parent: Manifest, hooks: Hooks, learn: Learn) -> float:
    """Train, measure and save; when the last step was taken and, but for an adapter, the measuring over, by the
    monotonic clock.
    """
    if (state := state_folder(request.parent_folder)).exists():
        verify_state(state, tree_digest=parent.tree_digest)
    try:
        trainer, applied = learn(request, parent, hooks)
    except UpdateFailed:
        clear_snapshots(state_folder(request.out_folder))  # back to the parent: none is to be gone on from
        raise
    forgetting = None if request.config.lora_rank else _forgetting(request, trainer.logprobs)
    trained = time.monotonic()
    _save(request, parent, trainer, applied, forgetting, hooks)
    return trained


def learn_from_batch(
    request: UpdateRequest, parent: Manifest, hooks: Hooks, *, open_trainer: Callable[..., Trainer] = LocalTrainer
) -> tuple[Trainer, Applied]:
    """One pass of `apply_update` over the batch, from its last snapshot on; `open_trainer` takes what LocalTrainer
    does.
    """
    batch = read_batch(request.batch_folder)
    config, lineage = request.config, request.lineage or tuple(range(request.parent_version + 1))
    teacher = teacher_folder(request.folders, request.parent_folder)
    selection = select_credited(batch, config, lineage, has_teacher=teacher is not None)
    base = base_scorer(request.base_folder, config, selection.samples, device=request.device)
    trainer, keeper = begin(
        request, parent, hooks, open_trainer=open_trainer, teacher=None if config.distills_sampled else teacher
    )
    opinions = frozen_scorer(teacher, config, device=request.device) if teacher else None
    applied = apply_update(
        trainer, selection, config, seed=request.seed, base=base, hooks=hooks, keeper=keeper, teacher=opinions
    )
    refuse_idle(applied.history)
    return trainer, applied


def begin(
    request: UpdateRequest, parent: Manifest, hooks: Hooks, *, open_trainer: Callable[..., Trainer], **options: Any
) -> tuple[Trainer, Snapshots]:
    """The parent's weights with their optimizer, and what keeps this update's snapshots."""
    state = state_folder(request.parent_folder)
    trainer = open_trainer(
        request.parent_folder,
        config=request.config,
        device=request.device,
        seed=request.seed,
        state=state if state.exists() else None,
        **options,
    )
    hooks.crash("update.before_train")
    keeper = Snapshots(
        state_folder(request.out_folder),
        trainer,
        request.config,
        parent_digest=parent.tree_digest,
        identity=identity_of(request, parent),
        crash=hooks.crash,
    )
    return trainer, keeper


def _save(
    request: UpdateRequest,
    parent: Manifest,
    trainer: Trainer,
    applied: Applied,
    forgetting: Forgetting | None,
    hooks: Hooks,
) -> None:
    """State first, checkpoint second: a checkpoint that exists always has the state to go on from.

    `forgetting` None: measured on what is saved, which of an adapter is its sum with the base, rounded.
    """
    clear_drafts(request.out_folder)
    state = state_folder(request.out_folder)
    clear_drafts(state)
    with new_folder(request.out_folder) as draft:
        written = trainer.save_weights(draft)
        hooks.crash("update.mid_save")
        if forgetting is None:
            forgetting = _forgetting(request, frozen_scorer(draft, request.config, device=request.device))
        manifest = write_manifest(
            draft,
            policy=request.policy,
            version=request.version,
            parent=request.parent_version,
            parent_tree_digest=parent.tree_digest,
            optimizer_step=trainer.optimizer_step,
            batches=[request.batch_folder.name],
            reward_spec=request.reward_spec,
            config_digest=request.config.digest,
            code_version=request.code_version,
        )
        with new_folder(state) as state_draft:
            trainer.save_state(state_draft)
            (state_draft / METRICS).write_text(json.dumps(applied.metrics | forgetting.numbers | written), "utf-8")
            (state_draft / FORGETTING).write_text(json.dumps(forgetting.to_json()), "utf-8")
            (state_draft / ORDER).write_text(json.dumps(applied.order), "utf-8")
            write_state_manifest(state_draft, tree_digest=manifest.tree_digest, facts=identity_of(request, parent))
            sync_tree(state_draft)
            if state.exists():  # of a run that was killed, or of this one while it ran
                for snapshot in snapshots_in(state):
                    snapshot.rename(state_draft / snapshot.name)  # needed until the checkpoint is there
                shutil.rmtree(state)
        hooks.crash("update.before_rename")
    hooks.crash("update.after_rename")


def _forgetting(request: UpdateRequest, candidate: Scorer) -> Forgetting:
    return measure_forgetting(
        candidate,
        folder=request.parent_folder,
        base=request.base_folder,
        config=request.config,
        texts_folder=request.texts_folder,
        device=request.device,
    )


def _verify_ours(request: UpdateRequest, parent: Manifest) -> Manifest:
    """The manifest of the finished checkpoint. Raises CorruptCheckpoint when the folder is another request's."""
    manifest = verify_folder(request.out_folder)
    state = verify_state(state_folder(request.out_folder), tree_digest=manifest.tree_digest)
    for name, value in identity_of(request, parent).items():
        if state.get(name) != value:
            raise CorruptCheckpoint(f"{request.out_folder} was made by another update: its {name} differs")
    return manifest


def identity_of(request: UpdateRequest, parent: Manifest) -> dict[str, Any]:
    """What decides the weights, apart from code and machine."""
    return {
        "policy": request.policy,
        "version": request.version,
        "parent_tree_digest": parent.tree_digest,
        "batch": request.batch_folder.name,
        "config_digest": request.config.digest,
        "base": request.base_folder and read_manifest(request.base_folder).tree_digest,
        **{
            name: read_manifest(folder).tree_digest
            for name, folder in request.folders.items()
            if name != CORPUS  # its digest is its input
        },
        "lineage": list(request.lineage),
        "seed": request.seed,
        **({} if request.kind == "online" else {"kind": request.kind, "inputs": dict(request.inputs)}),
    }
