"""What a trainer needs to go on exactly where it stopped, beside the checkpoint it belongs to.

`<policy>/train/v000003/` next to `<policy>/v000003/`: optimizer tensors, a small JSON of counters and random state, and
a manifest that names the checkpoint's weights. Engines never fetch it.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xxhash

from rl_online.weights.errors import CorruptCheckpoint
from rl_online.weights.manifest import MANIFEST, seal_json, unseal_json

FORMAT = 1
STATE = "state.json"
FORGETTING = "forgetting.json"  # what the update cost on general text, see `rl_online.gate.forgetting`


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerState:
    """The parts of a trainer's state that are no tensors."""

    optimizer_step: int  # steps applied along the lineage
    generator: str  # torch generator state, hexadecimal
    micro_batch_tokens: int | None = None  # of one pass by then; fewer than asked for where memory had run out
    adapter: str | None = None  # what kind of adapter trained, see training.lora; None: every weight did


def state_folder(checkpoint: Path) -> Path:
    return checkpoint.parent / "train" / checkpoint.name


def write_state(folder: Path, state: TrainerState) -> None:
    values = {name: value for name, value in asdict(state).items() if value is not None}
    (folder / STATE).write_text(json.dumps(values), "utf-8")


def read_state(folder: Path) -> TrainerState:
    return TrainerState(**json.loads((folder / STATE).read_text("utf-8")))


def write_state_manifest(folder: Path, *, tree_digest: str, facts: dict[str, Any]) -> None:
    """Bind the files now in `folder` to the weights they belong to."""
    files = {
        path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "xxh3_128": _hash(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path != folder / MANIFEST
    }
    values = {"format": FORMAT, "tree_digest": tree_digest, "files": files, **facts}
    (folder / MANIFEST).write_bytes(seal_json(values))


def verify_state(folder: Path, *, tree_digest: str) -> dict[str, Any]:
    """The state's manifest, after its files were checked. Raises CorruptCheckpoint, also for another checkpoint's."""
    try:
        values = unseal_json((folder / MANIFEST).read_bytes())
        for name, row in values["files"].items():
            if (folder / name).stat().st_size != row["size"] or _hash(folder / name) != row["xxh3_128"]:
                raise CorruptCheckpoint(f"train/{folder.name}/{name} is damaged")
    except (OSError, KeyError) as error:
        raise CorruptCheckpoint(f"train/{folder.name} is not whole: {error}") from error
    if values["tree_digest"] != tree_digest:
        raise CorruptCheckpoint(f"train/{folder.name} belongs to other weights than the checkpoint beside it")
    return values


def _hash(path: Path) -> str:
    digest = xxhash.xxh3_128()
    with path.open("rb") as handle:
        while chunk := handle.read(1 << 24):
            digest.update(chunk)
    return digest.hexdigest()
