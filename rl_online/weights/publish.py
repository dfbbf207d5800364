"""Delta objects on disk: made from two checkpoint folders, and turned back into a folder.

`deltas/000003-from-000002.gapulp` holds the bytes; the `.json` beside it holds their digest and the child's whole
MANIFEST, so a receiver that has the parent needs these two files and nothing else. The object is written first, the
manifest last: a manifest that exists names an object that is whole.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rl_online.rewards.durable import new_folder, write_file
from rl_online.weights.delta import CODEC, apply_delta, encode_delta, parse_delta
from rl_online.weights.errors import CorruptCheckpoint, CorruptDelta
from rl_online.weights.manifest import (
    MANIFEST,
    Manifest,
    read_manifest,
    seal_json,
    unseal_json,
    verify_folder,
    write_manifest,
)
from rl_online.weights.tensors import Tensor, read_tensor_file, read_tensors, weight_files, write_tensor_file

FORMAT = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class DeltaRef:
    """A published delta."""

    path: Path  # the object
    manifest_path: Path  # its manifest
    size: int  # bytes of the object


@dataclass(frozen=True, kw_only=True, slots=True)
class DeltaManifest:
    """What a receiver learns before it fetches the object."""

    base_version: int
    base_tree_digest: str
    size: int
    sha256: str
    manifest: Manifest  # of the child folder
    manifest_bytes: bytes  # the child's MANIFEST.json as the publisher wrote it


def delta_name(version: int, base_version: int) -> str:
    return f"{version:06d}-from-{base_version:06d}.{CODEC}"


def publish_delta(
    parent_folder: Path, child_folder: Path, deltas_root: Path, *, crash: Callable[[], None] = lambda: None
) -> DeltaRef:
    """Write the delta from parent to child under `deltas_root`, unless a whole one is there already.

    Both folders must verify; raises CorruptCheckpoint when one does not. `crash` is called between object and manifest.
    """
    parent, child = verify_folder(parent_folder), verify_folder(child_folder)
    path = deltas_root / delta_name(child.version, parent.version)
    manifest_path = path.with_name(path.name + ".json")
    child_manifest = (child_folder / MANIFEST).read_text("utf-8")
    if _is_published(path, manifest_path, parent, child_manifest):
        return DeltaRef(path=path, manifest_path=manifest_path, size=path.stat().st_size)
    delta = encode_delta(
        read_tensors(parent_folder),
        read_tensors(child_folder),
        parent_rows=parent.tensors,
        child_rows=child.tensors,
        extra=_other_files(parent, child, child_folder),
    )
    write_file(path, delta)
    crash()
    facts = {
        "format": FORMAT,
        "codec": CODEC,
        "base_version": parent.version,
        "base_tree_digest": parent.tree_digest,
        "size": len(delta),
        "sha256": hashlib.sha256(delta).hexdigest(),
        "manifest": child_manifest,
    }
    write_file(manifest_path, seal_json(facts))
    return DeltaRef(path=path, manifest_path=manifest_path, size=len(delta))


def parse_delta_manifest(data: bytes) -> DeltaManifest:
    """Raises CorruptCheckpoint unless every byte is as published."""
    facts = unseal_json(data)
    try:
        if (facts["format"], facts["codec"]) != (FORMAT, CODEC):
            raise CorruptDelta(f"delta format {facts['format']}/{facts['codec']} is not {FORMAT}/{CODEC}")
        child = facts["manifest"].encode()
        return DeltaManifest(
            base_version=facts["base_version"],
            base_tree_digest=facts["base_tree_digest"],
            size=facts["size"],
            sha256=facts["sha256"],
            manifest=Manifest.from_json(unseal_json(child)),
            manifest_bytes=child,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise CorruptDelta(f"the delta's manifest lacks {error}") from error


def decode_published(parent: Mapping[str, Tensor], delta: bytes, manifest: DeltaManifest) -> dict[str, Tensor]:
    """The child's tensors in fresh memory, checked against the delta's manifest. Raises CorruptDelta or WrongBase."""
    if len(delta) != manifest.size or hashlib.sha256(delta).hexdigest() != manifest.sha256:
        raise CorruptDelta("the delta is not the object its manifest names")
    return apply_delta(parent, delta, tree=manifest.manifest.tree_digest)


def rebuild_folder(parent_folder: Path, delta: bytes, manifest: DeltaManifest, out_folder: Path) -> Manifest:
    """Make `out_folder` the child's checkpoint, byte for byte, from the parent's folder and the two published files.

    The folder appears whole or not at all. Raises CorruptCheckpoint (or a kind of it) and leaves nothing behind.
    """
    tensors = decode_published(read_tensors(parent_folder), delta, manifest)
    inline = _parse_other_files(parse_delta(delta).extra)
    parent = read_manifest(parent_folder)
    with new_folder(out_folder) as draft:
        for name, row in manifest.manifest.files.items():
            target = draft / name
            if not target.resolve().is_relative_to(draft.resolve()):
                raise CorruptDelta(f"the manifest names a file outside its folder: {name}")
            target.parent.mkdir(parents=True, exist_ok=True)
            if name in inline.headers:
                write_tensor_file(target, inline.headers[name], tensors)
            elif name in inline.files:
                target.write_bytes(inline.files[name])
            elif parent.files.get(name) == row:
                shutil.copyfile(parent_folder / name, target)
            else:
                raise CorruptDelta(f"neither the parent nor the delta holds {name}")
        (draft / MANIFEST).write_bytes(manifest.manifest_bytes)
        verify_folder(draft)
    return read_manifest(out_folder)


def adopt_folder(source: Path, target: Path, *, policy: str, version: int, code_version: str = "") -> Manifest:
    """Make `target` a first checkpoint of `policy` with the files of `source` (hard links where the disk allows).

    An existing `target` that verifies as this very checkpoint is kept. Raises CorruptCheckpoint when `source` has a
    manifest that does not verify.
    """
    if (source / MANIFEST).exists():
        verify_folder(source)
    if not target.is_dir():
        with new_folder(target) as draft:
            for path in sorted(source.rglob("*")):
                if path.is_file() and path != source / MANIFEST:
                    _link(path, draft / path.relative_to(source))
            write_manifest(draft, policy=policy, version=version, code_version=code_version)
    manifest = verify_folder(target)
    if (manifest.policy, manifest.version) != (policy, version):
        raise CorruptCheckpoint(f"{target} holds {manifest.policy}@{manifest.version}, not {policy}@{version}")
    return manifest


@dataclass(frozen=True, kw_only=True, slots=True)
class _Inline:
    headers: dict[str, bytes]  # safetensors headers of the child's weight files
    files: dict[str, bytes]  # other files that differ from the parent's


def _other_files(parent: Manifest, child: Manifest, child_folder: Path) -> bytes:
    """Headers of the weight files, and the small files that changed, as one blob."""
    weights = {path.name: read_tensor_file(path).header for path in weight_files(child_folder)}
    changed = {
        name: (child_folder / name).read_bytes()
        for name, row in child.files.items()
        if name not in weights and parent.files.get(name) != row
    }
    index = {
        "headers": {name: len(data) for name, data in weights.items()},
        "files": {name: len(data) for name, data in changed.items()},
    }
    return b"".join([json.dumps(index).encode(), b"\n", *weights.values(), *changed.values()])


def _parse_other_files(blob: bytes) -> _Inline:
    line, _, body = blob.partition(b"\n")
    index = json.loads(line)
    position = 0
    found: dict[str, dict[str, bytes]] = {"headers": {}, "files": {}}
    for kind in ("headers", "files"):
        for name, size in index[kind].items():
            found[kind][name] = body[position : position + size]
            position += size
    return _Inline(headers=found["headers"], files=found["files"])


def _is_published(path: Path, manifest_path: Path, parent: Manifest, child_manifest: str) -> bool:
    try:
        known = parse_delta_manifest(manifest_path.read_bytes())
        with path.open("rb") as handle:
            sha256 = hashlib.file_digest(handle, "sha256").hexdigest()
    except (OSError, CorruptCheckpoint):
        return False
    same = known.manifest_bytes == child_manifest.encode() and known.base_tree_digest == parent.tree_digest
    return same and sha256 == known.sha256


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
