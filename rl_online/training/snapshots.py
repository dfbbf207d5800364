"""What a killed update goes on from: its trainer's state and the steps it has done, kept while it runs.

`<policy>/train/v000003/snapshot-000040/` holds all of it after step 40, whole or absent, bound to the update it belongs
to. The newest one is kept. A disk that is full costs the new snapshot, never the last one or the update.
"""

import json
import logging
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError

from rl_online.rewards.durable import clear_drafts, new_folder
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.state import verify_state, write_state_manifest
from rl_online.weights.errors import CorruptCheckpoint

HISTORY = "history.json"
PREFIX = "snapshot-"
WORTH_KEEPING_S = 30.0  # of training: less is sooner done again than written when an update is told to stop

log = logging.getLogger("updater")

History = list[dict[str, float]]  # the numbers of each step done


class Keeper(Protocol):
    """Where the steps of an update survive the process."""

    def restore(self) -> History:
        """Bring the trainer to where this update was left; the steps it has done, none for a fresh start."""

    def keep(self, history: Sequence[dict[str, float]], *, is_stopping: bool = False) -> None:
        """Called after each step, and once more when the update is told to stop."""


class Resumable(Protocol):
    """What an update changes as it goes: a trainer, or several."""

    def save_snapshot(self, folder: Path) -> None:
        """Write all that is needed to go on in the middle of an update into the empty `folder`, to the bit."""

    def load_snapshot(self, folder: Path) -> None:
        """Go on from what `save_snapshot` wrote."""


class KeepsNothing:
    def restore(self) -> History:
        return []

    def keep(self, history: Sequence[dict[str, float]], *, is_stopping: bool = False) -> None:
        pass


class Snapshots:
    """Keeps them in `folder`, the state folder of the checkpoint that the update makes."""

    def __init__(
        self,
        folder: Path,
        trainer: Resumable,
        config: UpdateConfig,
        *,
        parent_digest: str,
        identity: Mapping[str, Any],
        crash: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._trainer = trainer
        self._config = config
        self._parent_digest = parent_digest
        self._identity = dict(identity)
        self._crash = crash
        self._kept_step = 0
        self._kept_at = time.monotonic()

    def restore(self) -> History:
        for snapshot in reversed(snapshots_in(self._folder)):
            if self._is_ours(snapshot):
                history: History = json.loads((snapshot / HISTORY).read_text("utf-8"))
                self._trainer.load_snapshot(snapshot)
                self._kept_step = len(history)
                return history
            shutil.rmtree(snapshot)  # else it would stand where a whole one is to be written
        return []

    def _is_ours(self, snapshot: Path) -> bool:
        try:
            facts = verify_state(snapshot, tree_digest=self._parent_digest)
        except CorruptCheckpoint as error:
            log.warning("a snapshot is passed over: %s", error)
            return False
        return all(facts.get(name) == value for name, value in self._identity.items())

    def keep(self, history: Sequence[dict[str, float]], *, is_stopping: bool = False) -> None:
        if not self._is_due(len(history), is_stopping=is_stopping):
            return
        try:
            self._write(history)
        except (OSError, SafetensorError) as error:
            log.warning("no snapshot after step %d, the last one stays: %s", len(history), error)
        self._kept_step, self._kept_at = len(history), time.monotonic()

    def _is_due(self, step: int, *, is_stopping: bool) -> bool:
        every, seconds = self._config.snapshot_steps, self._config.snapshot_s
        if step == self._kept_step:
            return False
        at_stake = time.monotonic() - self._kept_at
        if is_stopping:
            return bool(every) or (seconds > 0 and at_stake >= min(seconds, WORTH_KEEPING_S))
        return (every > 0 and step % every == 0) or (seconds > 0 and at_stake >= seconds)

    def _write(self, history: Sequence[dict[str, float]]) -> None:
        target = self._folder / f"{PREFIX}{len(history):06d}"
        if any(other.name > target.name for other in snapshots_in(self._folder)):
            return  # another updater has taken this update over, and is further on
        self._crash("update.before_snapshot")
        clear_drafts(target)
        with new_folder(target) as draft:
            self._trainer.save_snapshot(draft)
            (draft / HISTORY).write_text(json.dumps(list(history)), "utf-8")
            self._crash("update.mid_snapshot")
            write_state_manifest(draft, tree_digest=self._parent_digest, facts=self._identity)
        for older in snapshots_in(self._folder):
            if older.name < target.name:
                shutil.rmtree(older)
        self._crash("update.after_snapshot")


def snapshots_in(folder: Path) -> list[Path]:
    """Oldest first."""
    return sorted(folder.glob(f"{PREFIX}*"))


def clear_snapshots(folder: Path) -> None:
    """Once they are no longer needed, drafts of killed writers included; the folder too where nothing else is in it."""
    for one in [*snapshots_in(folder), *folder.glob(f".{PREFIX}*.tmp")]:
        shutil.rmtree(one)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
