"""A few samples trained for a look at the numbers: what an update would do to loss, drift, memory and time.

The weights are loaded, trained and forgotten. Nothing is written: no checkpoint, no delta, no optimizer state.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rl_online.policy.load import choose_device
from rl_online.rewards.batch import Batch
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.apply import Hooks, Progress, apply_update, select_credited
from rl_online.training.local import LocalTrainer
from rl_online.training.memory import peak_memory, reusing_memory
from rl_online.training.scoring import base_scorer, frozen_scorer, teacher_folder
from rl_online.training.state import state_folder, verify_state
from rl_online.weights.manifest import verify_folder

NUM_STEPS = 2  # per epoch: the second shows what the first did to the drift


@dataclass(frozen=True, kw_only=True, slots=True)
class DryRunRequest:
    """What is tried."""

    parent_folder: Path
    base_folder: Path | None  # frozen reference for KL and KTO
    batch: Batch
    lineage: tuple[int, ...]  # versions from the oldest to the parent
    seed: int
    device: str  # auto, cpu or cuda
    config: UpdateConfig  # its minibatch_size is made small enough for two steps
    kind: str = "online"  # the stage of training
    inputs: Mapping[str, Any] = field(default_factory=dict)  # what it needs beside the batch, by name
    folders: Mapping[str, Path] = field(default_factory=dict)  # where those inputs lie that are folders


@dataclass(frozen=True, kw_only=True, slots=True)
class DryRunResult:
    steps: list[dict[str, float]]  # the numbers of each optimizer step
    load_s: float  # until the weights and the optimizer were in memory
    seconds: float  # of the steps
    tokens_per_s: float
    peak_bytes: int | None  # most memory held meanwhile; None where the system does not tell
    device: str


def run_dry(request: DryRunRequest, *, is_cancelled: Callable[[], bool]) -> DryRunResult:
    """Raises UpdateFailed, UpdateCancelled, CorruptCheckpoint."""
    device = choose_device(request.device)
    config = replace(request.config, minibatch_size=max(1, len(request.batch.samples) // NUM_STEPS))
    seen: list[Progress] = []
    hooks = Hooks(on_progress=seen.append, is_cancelled=is_cancelled, crash=lambda name: None)
    started = time.monotonic()
    with reusing_memory(), peak_memory(device) as peak_bytes:
        parent = verify_folder(request.parent_folder)
        state = state_folder(request.parent_folder)
        if state.exists():
            verify_state(state, tree_digest=parent.tree_digest)
        teacher = teacher_folder(request.folders, request.parent_folder)
        selection = select_credited(request.batch, config, request.lineage, has_teacher=teacher is not None)
        base = base_scorer(request.base_folder, config, selection.samples, device=request.device)
        trainer = LocalTrainer(
            request.parent_folder,
            config=config,
            device=request.device,
            seed=request.seed,
            state=state if state.exists() else None,
            teacher=None if config.distills_sampled else teacher,
        )
        loaded = time.monotonic()
        apply_update(
            trainer,
            selection,
            config,
            seed=request.seed,
            base=base,
            hooks=hooks,
            teacher=frozen_scorer(teacher, config, device=request.device) if teacher else None,
        )
        ended = time.monotonic()
        peak = peak_bytes()
    return DryRunResult(
        steps=[progress.metrics for progress in seen if progress.metrics],
        load_s=loaded - started,
        seconds=ended - loaded,
        tokens_per_s=seen[-1].tokens_per_s,
        peak_bytes=peak,
        device=str(device),
    )
