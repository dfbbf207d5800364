"""MANIFEST.json: what a checkpoint folder holds, to the byte, and where it came from (CONTRACTS.md 3).

`tree_digest` names the weights themselves: equal digests mean equal tensors, whatever files they are split over.
"""

import datetime
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rl_online.rewards.durable import sync_file
from rl_online.weights.errors import CorruptCheckpoint
from rl_online.weights.tensors import Tensor, read_tensors

FORMAT = 1
MANIFEST = "MANIFEST.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorRow:
    """One tensor as the manifest lists it."""

    dtype: str
    shape: tuple[int, ...]
    xxh3_128: str  # of the tensor's bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class FileRow:
    """One file as the manifest lists it."""

    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """The facts of one checkpoint folder."""

    format: int = FORMAT
    policy: str  # uuid of the policy; empty for a folder of the model store
    version: int
    parent: int | None  # version it was trained from; None for a first checkpoint
    parent_tree_digest: str | None
    tree_digest: str
    tensors: dict[str, TensorRow]  # a tied tensor once, under the name the file has
    files: dict[str, FileRow]  # every file of the folder but this one
    optimizer_step: int
    batches: list[str]  # digests of the batches learnt from since the parent
    reward_spec: str
    config_digest: str  # of the UpdateConfig
    code_version: str
    created_at: str  # RFC 3339

    def to_bytes(self) -> bytes:
        """Sorted, indented JSON that ends in its own digest."""
        return seal_json(asdict(self))

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Manifest":
        """Fields a later writer added are ignored. Raises CorruptCheckpoint for a missing or false one."""
        try:
            known = {name: values[name] for name in cls.__slots__}
            known["tensors"] = {
                name: TensorRow(dtype=row["dtype"], shape=tuple(row["shape"]), xxh3_128=row["xxh3_128"])
                for name, row in values["tensors"].items()
            }
            known["files"] = {
                name: FileRow(size=row["size"], sha256=row["sha256"]) for name, row in values["files"].items()
            }
        except (KeyError, TypeError, AttributeError) as error:
            raise CorruptCheckpoint(f"the manifest lacks {error}") from error
        if known["format"] != FORMAT:
            raise CorruptCheckpoint(f"manifest format {known['format']} is not {FORMAT}")
        manifest = cls(**known)
        if tree_digest(manifest.tensors) != manifest.tree_digest:
            raise CorruptCheckpoint("the manifest's tree digest does not follow from its tensors")
        return manifest


def tree_digest(tensors: Mapping[str, TensorRow]) -> str:
    """sha256 over the sorted lines `name DTYPE dims xxh3_128`, dims joined by x (empty for a scalar)."""
    lines = sorted(
        f"{name} {row.dtype} {'x'.join(map(str, row.shape))} {row.xxh3_128}\n" for name, row in tensors.items()
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def tensor_rows(tensors: Mapping[str, Tensor]) -> dict[str, TensorRow]:
    """Hash every tensor."""
    return {
        name: TensorRow(dtype=tensor.dtype, shape=tensor.shape, xxh3_128=tensor.digest)
        for name, tensor in tensors.items()
    }


def write_manifest(
    folder: Path,
    *,
    policy: str,
    version: int,
    parent: int | None = None,
    parent_tree_digest: str | None = None,
    optimizer_step: int = 0,
    batches: Sequence[str] = (),
    reward_spec: str = "",
    config_digest: str = "",
    code_version: str = "",
) -> Manifest:
    """Describe the files now in `folder` and write its MANIFEST.json last, after they are on the disk.

    Meant for a draft folder that is renamed afterwards. Raises CorruptCheckpoint when the weights cannot be read.
    """
    names = _file_names(folder)
    for name in names:
        sync_file(folder / name)
    rows = tensor_rows(read_tensors(folder))
    manifest = Manifest(
        policy=policy,
        version=version,
        parent=parent,
        parent_tree_digest=parent_tree_digest,
        tree_digest=tree_digest(rows),
        tensors=dict(sorted(rows.items())),
        files={name: _file_row(folder / name) for name in names},
        optimizer_step=optimizer_step,
        batches=list(batches),
        reward_spec=reward_spec,
        config_digest=config_digest,
        code_version=code_version,
        created_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
    )
    (folder / MANIFEST).write_bytes(manifest.to_bytes())
    sync_file(folder / MANIFEST)
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """The manifest alone, checked in itself but not against the files. Raises CorruptCheckpoint."""
    try:
        data = (folder / MANIFEST).read_bytes()
    except OSError as error:
        raise CorruptCheckpoint(f"{folder.name} has no readable {MANIFEST}") from error
    return parse_manifest(data)


def parse_manifest(data: bytes) -> Manifest:
    """The manifest in `data`, refused unless every byte is as written."""
    return Manifest.from_json(unseal_json(data))


def verify_folder(folder: Path) -> Manifest:
    """The manifest of `folder`, after every byte of every file was checked against it.

    Raises CorruptCheckpoint for a changed, missing, cut or unlisted file, and for a tensor table that does not match.
    """
    manifest = read_manifest(folder)
    names = set(_file_names(folder))
    if names != set(manifest.files):
        raise CorruptCheckpoint(f"{folder.name}: these files are not as listed: {sorted(names ^ set(manifest.files))}")
    for name, row in manifest.files.items():
        if _file_row(folder / name) != row:
            raise CorruptCheckpoint(f"{folder.name}/{name} is damaged")
    tensors = read_tensors(folder)
    found = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
    if found != {name: (row.dtype, row.shape) for name, row in manifest.tensors.items()}:
        raise CorruptCheckpoint(f"{folder.name}: the tensors are not the ones listed")
    return manifest


def seal_json(values: Mapping[str, Any]) -> bytes:
    """`values` as indented, sorted JSON with a `digest` field over all the others."""
    body = {name: value for name, value in values.items() if name != "digest"}
    digest = hashlib.sha256(_canonical(body)).hexdigest()
    return _canonical(body | {"digest": digest})


def unseal_json(data: bytes) -> dict[str, Any]:
    """What `seal_json` wrote. Raises CorruptCheckpoint unless every byte is as written."""
    try:
        values = json.loads(data)
        intact = isinstance(values, dict) and "digest" in values and seal_json(values) == data
    except (ValueError, RecursionError) as error:
        raise CorruptCheckpoint(f"a manifest cannot be read: {error}") from error
    if not intact:
        raise CorruptCheckpoint("a manifest does not match its own digest")
    return values


def _canonical(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, sort_keys=True, indent=1, ensure_ascii=False) + "\n").encode()


def _file_names(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path != folder / MANIFEST
    )


def _file_row(path: Path) -> FileRow:
    with path.open("rb") as handle:
        return FileRow(size=path.stat().st_size, sha256=hashlib.file_digest(handle, "sha256").hexdigest())
