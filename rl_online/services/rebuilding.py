"""A checkpoint whose files retention deleted, made again from an older one and the deltas between: the same bytes."""

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from django.conf import settings

from registry.errors import Conflict
from registry.models import Checkpoint, Policy
from registry.services import audit, find_checkpoint
from registry.tenancy import tenant
from rl_online.retention import Version, chain_to
from rl_online.services.plans import checkpoint_folder, deltas_folder, folder_of
from rl_online.weights.errors import CorruptCheckpoint
from rl_online.weights.manifest import verify_folder
from rl_online.weights.publish import parse_delta_manifest, rebuild_folder


def rebuild(project_id: UUID, name: str, *, actor: str) -> Checkpoint:
    """Bring back the files of `<policy>@<version>`, pinned. Raises NotFound, and Conflict where the chain is broken.

    Optimizer state is not brought back: an update that starts from it starts with a fresh optimizer.
    """
    with tenant(project_id):
        checkpoint = find_checkpoint(name)
        if checkpoint.files_deleted_at is None:
            raise Conflict(f"the files of {checkpoint} are there")
        chain = chain_to(checkpoint.version, _versions(checkpoint.policy), stop=lambda at: True)
    if chain is None:
        raise Conflict(f"{checkpoint} cannot be made again: a delta between it and an older checkpoint is gone")
    start, links = chain
    with _scratch(checkpoint.policy_id) as scratch:
        base = checkpoint_folder(checkpoint.policy_id, start)
        for number in links:
            out = folder_of(checkpoint) if number == checkpoint.version else scratch / f"v{number:06d}"
            base = _apply(base, number, checkpoint.policy_id, out)
    if verify_folder(base).tree_digest != checkpoint.tree_digest:
        shutil.rmtree(base)
        raise Conflict(f"what the deltas lead to is not {checkpoint}")
    with tenant(project_id):
        Checkpoint.objects.filter(pk=checkpoint.pk).update(
            files_deleted_at=None, files_deleted_reason="", is_pinned=True
        )
        audit("rebuild files", "checkpoint", checkpoint, actor=actor, after={"from": start, "deltas": len(links)})
        return find_checkpoint(name)


def _versions(policy: Policy) -> dict[int, Version]:
    """Every checkpoint of the policy as the chain sees it."""
    rows = Checkpoint.objects.select_related("parent").filter(policy=policy)
    published = {path.name.split("-")[0] for path in deltas_folder(policy.id).glob("*-from-*.json")}
    return {
        one.version: Version(
            number=one.version,
            parent=one.parent.version if one.parent else None,
            has_files=one.files_deleted_at is None and folder_of(one).is_dir(),
            has_delta=f"{one.version:06d}" in published,
        )
        for one in rows
    }


def _apply(base: Path, version: int, policy_id: UUID, out: Path) -> Path:
    described = next(iter(sorted(deltas_folder(policy_id).glob(f"{version:06d}-from-*.json"))))
    try:
        manifest = parse_delta_manifest(described.read_bytes())
        rebuild_folder(base, described.with_name(described.name.removesuffix(".json")).read_bytes(), manifest, out)
    except (OSError, CorruptCheckpoint) as error:
        raise Conflict(f"the delta to version {version} is damaged: {error}") from error
    return out


@contextmanager
def _scratch(policy_id: UUID) -> Iterator[Path]:
    """A folder for the versions in between; left behind by a kill, it is an orphan."""
    folder = settings.HOME.checkpoints / str(policy_id) / f".rebuild.{secrets.token_hex(6)}.tmp"
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
