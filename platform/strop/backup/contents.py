"""Which files a snapshot of the database refers to: checkpoints with their training state and deltas, batches,
and where all is asked for, reward models, corpora and people's general texts.

Read as the owner and across tenants, also from a database that this code has not migrated yet.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import LiteralString

import psycopg

from rl_online.training.general_texts import NAME as SET_NAME
from strop.home import Home

# What serves or is about to, what can be gone back to, and what the gate and the next update start from.
NEEDED_SQL = """
SELECT checkpoint_id FROM registry_deployment UNION SELECT previous_id FROM registry_deployment
UNION SELECT canary_id FROM registry_deployment
UNION SELECT first.id FROM registry_checkpoint first WHERE NOT EXISTS (
  SELECT FROM registry_checkpoint older WHERE older.policy_id = first.policy_id AND older.version < first.version)
UNION SELECT checkpoint_id FROM rl_online_updaterun WHERE state IN ('proving', 'waiting')
UNION SELECT parent_id FROM rl_online_updaterun WHERE state IN ('queued', 'training', 'proving')
"""
# A database from before retention has no files_deleted_at; read as JSON it is simply not there.
CHECKPOINTS_SQL = f"""
SELECT p.name || '@' || c.version, c.folder FROM registry_checkpoint c JOIN registry_policy p ON p.id = c.policy_id
WHERE to_jsonb(c) ->> 'files_deleted_at' IS NULL AND (%(all)s OR c.id IN ({NEEDED_SQL})) ORDER BY c.folder
"""  # noqa: S608 - put together of two constants
BATCHES_SQL = """
SELECT DISTINCT digest FROM rl_online_rewardbatch b WHERE to_jsonb(b) ->> 'files_deleted_at' IS NULL ORDER BY digest
"""
REWARD_MODELS_SQL = "SELECT folder FROM rl_online_rewardmodel WHERE files_deleted_at IS NULL ORDER BY folder"
CORPORA_SQL = """
SELECT DISTINCT project_id, digest FROM rl_online_corpus WHERE state = 'ready' AND files_deleted_at IS NULL
ORDER BY project_id, digest
"""


class Level(StrEnum):
    """Whose files a backup takes along; rows are always all of them."""

    ALL = "all"
    SERVING = "serving"  # what serves, its predecessor, the canary, open candidates, and where each policy began
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class Files:
    paths: dict[str, Path] = field(default_factory=dict)  # name in the archive -> file
    missing: list[str] = field(default_factory=list)  # what rows refer to and the disk does not have
    num_checkpoints: int = 0
    num_batches: int = 0

    @property
    def num_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.paths.values())


def referenced_files(connection: psycopg.Connection, home: Home, level: Level) -> Files:
    """Whole folders, or named as missing."""
    if level is Level.NONE or not _has_tables(connection):
        return Files()
    paths: dict[str, Path] = {}
    missing: list[str] = []
    checkpoints = connection.execute(CHECKPOINTS_SQL, {"all": level is Level.ALL}).fetchall()
    for name, folder in checkpoints:
        found = dict(_of_checkpoint(home.checkpoints, folder))
        if f"checkpoints/{folder}/MANIFEST.json" not in found:
            missing.append(f"checkpoint {name}")
        paths |= found
    batches = connection.execute(BATCHES_SQL).fetchall()
    for (digest,) in batches:
        found = dict(_below(home.batches / digest, f"batches/{digest}"))
        if not found:
            missing.append(f"batch {digest[:12]}")
        paths |= found
    if level is Level.ALL:
        for project, digest in _rows(connection, "rl_online_corpus", CORPORA_SQL):
            found = dict(_below(home.corpora / str(project) / digest, f"corpora/{project}/{digest}"))
            if not found:
                missing.append(f"corpus {digest[:12]}")
            paths |= found
        for (folder,) in _rows(connection, "rl_online_rewardmodel", REWARD_MODELS_SQL):
            found = dict(_below(home.checkpoints / folder, f"checkpoints/{folder}"))
            if f"checkpoints/{folder}/MANIFEST.json" not in found:
                missing.append(f"reward model {folder}")
            paths |= found
        paths |= {f"texts/{path.name}": path for path in sorted(home.texts.glob("*")) if _is_set(path)}
    return Files(paths=paths, missing=missing, num_checkpoints=len(checkpoints), num_batches=len(batches))


def _rows(connection: psycopg.Connection, table: str, query: LiteralString) -> list[tuple[str, ...]]:
    """None of a database from before there was the table."""
    row = connection.execute("SELECT to_regclass('public.' || %s) IS NOT NULL", [table]).fetchone()
    return connection.execute(query).fetchall() if row and row[0] else []


def _is_set(path: Path) -> bool:
    """Whether it may be a set of general texts; people may put anything else beside them."""
    return bool(SET_NAME.fullmatch(path.name)) and path.is_file() and not path.is_symlink()


def _of_checkpoint(root: Path, folder: str) -> Iterator[tuple[str, Path]]:
    """Weights, optimizer state, and the deltas that lead to this version."""
    policy, _, version = folder.rpartition("/")
    yield from _below(root / folder, f"checkpoints/{folder}")
    yield from _below(root / policy / "train" / version, f"checkpoints/{policy}/train/{version}")
    for path in sorted((root / policy / "deltas").glob(f"{version.removeprefix('v')}-from-*")):
        yield f"checkpoints/{policy}/deltas/{path.name}", path


def _below(folder: Path, name: str) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield f"{name}/{path.relative_to(folder).as_posix()}", path


def _has_tables(connection: psycopg.Connection) -> bool:
    row = connection.execute("SELECT to_regclass('public.rl_online_rewardbatch') IS NOT NULL").fetchone()
    return bool(row and row[0])
