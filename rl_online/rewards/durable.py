"""Folders and files that are whole or absent, whatever the moment of a power cut.

Everything immutable (batches, checkpoints, deltas) is written beside its final name, synced, and renamed into place.
Torch-free and Django-free; it lives in the lowest room that writes such folders.
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def sync_file(path: Path) -> None:
    """Wait until the bytes of `path` are on the disk; works for folders too."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Sync every file and folder below `folder`, and `folder` itself."""
    for path in sorted(folder.rglob("*"), reverse=True):
        sync_file(path)
    sync_file(folder)


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A private folder to fill; when the block ends it becomes `target` in one step.

    When another process made `target` first, its folder stays and ours is dropped: names here are addressed by content
    or belong to one writer, so both hold the same.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.parent / f".{target.name}.{secrets.token_hex(6)}.tmp"
    draft.mkdir()
    try:
        yield draft
        sync_tree(draft)
        try:
            os.rename(draft, target)
        except OSError:
            if not target.is_dir():
                raise
        sync_file(target.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write_file(target: Path, data: bytes) -> None:
    """Replace or create `target` in one step, durably."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.parent / f".{target.name}.{secrets.token_hex(6)}.tmp"
    try:
        with draft.open("wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        os.rename(draft, target)
        sync_file(target.parent)
    finally:
        draft.unlink(missing_ok=True)


def clear_drafts(target: Path) -> None:
    """Remove what a killed writer of `target` left behind. Only for names with a single writer."""
    for draft in target.parent.glob(f".{target.name}.*.tmp"):
        shutil.rmtree(draft) if draft.is_dir() else draft.unlink()
