"""Files going away: out of their place in one step, then deleted; and what crashes left lying on the disk.

Not here: deciding that a checkpoint or a batch is no longer needed (services.retention).
"""

import contextlib
import os
import secrets
import shutil
import stat
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings

from jobs import crash
from registry.models import Checkpoint, Policy
from registry.services import all_projects
from registry.tenancy import tenant
from rl_online.models import OPEN_STATES, Corpus, RewardBatch, RewardModel, UpdateRun

ORPHAN_AGE_S = 24 * 3600.0  # younger ones may be being written

Paths = list[tuple[str, Path]]  # (kind, folder or file)


@dataclass
class Amount:
    count: int = 0
    bytes: int = 0


@dataclass
class Report:
    """What a collection deleted, or would delete."""

    is_dry_run: bool
    kinds: dict[str, Amount] = field(default_factory=lambda: defaultdict(Amount))  # checkpoints, train, deltas, ...
    deleted: list[str] = field(default_factory=list)  # checkpoints and batches by name
    kept: dict[str, str] = field(default_factory=dict)  # checkpoint -> why

    @property
    def num_bytes(self) -> int:
        return sum(amount.bytes for amount in self.kinds.values())

    def to_json(self) -> dict[str, Any]:
        kinds = {name: asdict(amount) for name, amount in sorted(self.kinds.items())}
        rest = {"deleted": self.deleted, "kept": self.kept}
        return {"dry_run": self.is_dry_run, "bytes": self.num_bytes, "kinds": kinds, **rest}


def dispose(kind: str, path: Path, report: Report) -> None:
    """Delete `path` and count it; a kill in between leaves a draft, which is an orphan."""
    report.kinds[kind].count += 1
    report.kinds[kind].bytes += size_of(path)
    if report.is_dry_run:
        return
    doomed = path.with_name(f".{path.name.strip('.')[:100]}.{secrets.token_hex(6)}.tmp")
    try:
        os.rename(path, doomed)
    except FileNotFoundError:
        return  # another collection was quicker
    crash.point("gc.mid_delete")
    shutil.rmtree(doomed) if doomed.is_dir() else doomed.unlink()


def size_of(path: Path) -> int:
    """Bytes that deleting it would free: a file that is linked from elsewhere frees none."""
    total = 0
    with contextlib.suppress(FileNotFoundError):  # another collection was quicker
        for one in [path] if path.is_file() else path.rglob("*"):
            found = one.lstat()
            if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
                total += found.st_size
    return total


def dispose_orphans(report: Report) -> None:
    """Delete what no row of any project refers to and what nobody has written to for a day."""
    for path in list(_orphans()):
        if time.time() - _touched_at(path) > ORPHAN_AGE_S:
            dispose("orphans", path, report)


@dataclass(frozen=True, kw_only=True)
class _Known:
    policies: set[str]
    folders: set[str]  # <policy>/vNNNNNN of registered checkpoints, reward models and updates under way
    batches: set[str]
    corpora: set[str]  # <project>/<digest>, and what builds write in


def _known() -> _Known:
    policies: set[str] = set()
    folders: set[str] = set()
    batches: set[str] = set()
    corpora: set[str] = set()
    for project in all_projects():
        with tenant(project.id):
            policies |= {str(one) for one in Policy.objects.values_list("id", flat=True)}
            folders |= set(Checkpoint.objects.values_list("folder", flat=True))
            folders |= set(RewardModel.objects.values_list("folder", flat=True))
            making = UpdateRun.objects.filter(state__in=OPEN_STATES).values_list("policy_id", "version")
            folders |= {f"{policy}/v{version:06d}" for policy, version in making}
            batches |= set(RewardBatch.objects.values_list("digest", flat=True))
            for one in Corpus.objects.filter(files_deleted_at__isnull=True):
                corpora |= {f"{project.id}/{one.digest}"} if one.digest else {f"{project.id}/.building-{one.id}"}
    return _Known(policies=policies, folders=folders, batches=batches, corpora=corpora)


def _orphans() -> Iterator[Path]:
    # The disk is read before the rows: what is written meanwhile has its row, or is too young.
    checkpoints, batches = _listing(settings.HOME.checkpoints), _listing(settings.HOME.batches)
    below = {
        policy: [*_listing(policy), *_listing(policy / "train"), *_listing(policy / "deltas")] for policy in checkpoints
    }
    corpora = [path for project in _listing(settings.HOME.corpora) for path in _listing(project)]
    known = _known()
    yield from (path for path in corpora if f"{path.parent.name}/{path.name}" not in known.corpora)
    for policy in checkpoints:
        if _is_draft(policy) or (_is_uuid(policy.name) and policy.name not in known.policies):
            yield policy
        elif policy.name in known.policies:
            yield from (path for path in below[policy] if _is_draft(path) or not _belongs(path, policy.name, known))
    yield from (path for path in batches if _is_draft(path) or path.name not in known.batches)


def _belongs(path: Path, policy: str, known: _Known) -> bool:
    if path.name in ("train", "deltas"):
        return True
    version = f"v{path.name.split('-')[0]}" if path.parent.name == "deltas" else path.name
    return f"{policy}/{version}" in known.folders


def _listing(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_draft(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(".tmp")


def _is_uuid(name: str) -> bool:
    try:
        return str(UUID(name)) == name
    except ValueError:
        return False


def _touched_at(path: Path) -> float:
    """When something was last written in it; now, if it goes or changes its name while it is looked at."""
    try:
        newest = path.lstat().st_mtime
        for child in path.rglob("*") if path.is_dir() else ():
            newest = max(newest, child.lstat().st_mtime)
    except FileNotFoundError:
        return time.time()
    return newest
