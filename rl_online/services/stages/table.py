"""The stages beside online learning, by kind; forms, API, command line and updater read this table.

To add one: write `stages/<kind>.py` with its `STAGE`, list it here, give it a runner in `rl_online.commands.updater`,
a page part in `console.stages` and a row in docs/training.md.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from registry.errors import InvalidInput
from rl_online.models import UpdateKind, UpdateRun
from rl_online.services.stages import distill, midtrain, pairs, ppo, reward_model, sft
from rl_online.services.stages.stage import Stage

ALL: tuple[Stage, ...] = (midtrain.STAGE, sft.STAGE, pairs.STAGE, reward_model.STAGE, ppo.STAGE, distill.STAGE)
STAGES: dict[str, Stage] = {stage.kind: stage for stage in ALL}


def find_stage(kind: str) -> Stage:
    """Raises InvalidInput."""
    if kind not in STAGES:
        known = ", ".join([UpdateKind.ONLINE, *STAGES])
        raise InvalidInput(f"{kind[:40]!r} is no kind of update; choose from {known}", field="kind")
    return STAGES[kind]


def fits_as_update(kind: str) -> bool:
    """Whether a batch of this kind is checked against its settings as `run_update` would."""
    return kind not in STAGES or STAGES[kind].fits_as_update


def folders_of(kind: str, inputs: Mapping[str, Any]) -> dict[str, Path]:
    """Where those inputs of a run lie that are folders, by their name."""
    return STAGES[kind].folders(inputs) if kind in STAGES else {}


def register_result(run: UpdateRun, result: Mapping[str, Any]) -> None:
    """Write down what a kind without a checkpoint made."""
    register = STAGES[run.kind].register
    assert register is not None, f"{run.kind} makes a checkpoint"
    register(run, result)
