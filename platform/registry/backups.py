"""What the last backup of a home did: `<home>/run/backup.json`, for status, doctor and the System page to read.

Here because pages may not import the commands that make backups (strop.backup). Needs neither Django nor a database.

    {"state": "running" | "done" | "failed", "pid", "started_at", "finished_at", "file", "error", "last": {...}}

`last` is the newest backup that succeeded, also after later ones failed.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

BACKUP_JOB = "strop.backup"  # its handler is strop.backup.job


class BackupUnderWay(RuntimeError):
    """Another process backs this home up at the moment."""


class Journal:
    """`run`: the home's folder of that name."""

    def __init__(self, run: Path) -> None:
        self.path = run / "backup.json"

    def read(self) -> dict[str, Any]:
        """{} before the first backup; a running one whose process has gone is failed."""
        try:
            found = json.loads(self.path.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        if found["state"] == "running" and not _is_alive(found["pid"]):
            found |= {"state": "failed", "error": "the process that made it was ended"}
        return found

    @contextlib.contextmanager
    def begun(self, target: Path) -> Iterator["Journal"]:
        """Raises BackupUnderWay. What fails inside is written down and raised on."""
        before = self.read()
        if before.get("state") == "running":
            raise BackupUnderWay(f"a backup to {before['file']} is under way, pid {before['pid']}")
        self._entry = {
            "state": "running",
            "pid": os.getpid(),
            "started_at": _now(),
            "finished_at": None,
            "file": str(target),
            "error": "",
            "last": before.get("last"),
        }
        self._write()
        try:
            yield self
        except BaseException as error:
            self._entry |= {"state": "failed", "finished_at": _now(), "error": str(error)[:2000] or repr(error)}
            self._write()
            raise

    def done(self, made: Mapping[str, Any]) -> None:
        self._entry |= {"state": "done", "finished_at": _now(), "last": dict(made)}
        self._write()

    def _write(self) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self.path.with_suffix(".new")
        draft.write_text(json.dumps(self._entry, indent=1))
        draft.rename(self.path)


def made_backups(folder: Path) -> list[dict[str, Any]]:
    """What stands in `folder`, newest first: `file`, `bytes`, and what the small file beside each says of it."""
    found = []
    for path in folder.glob("*.tar.zst"):
        try:
            said = json.loads(path.with_name(path.name + ".json").read_text())
        except (FileNotFoundError, ValueError):
            said = {}
        with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
            stat = path.stat()
            at = f"{datetime.fromtimestamp(stat.st_mtime, UTC):%Y-%m-%dT%H:%M:%SZ}"
            found.append({"created_at": at, **said, "file": str(path), "bytes": stat.st_size})
    return sorted(found, key=lambda one: str(one["created_at"]), reverse=True)


def _is_alive(pid: int) -> bool:
    """Running, and no zombie that its parent has not looked at."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
