"""What the last backup of a home did: `<home>/run/backup.json`, for status, doctor and the System page to read.

Here because pages may not import the commands that make backups (strop.backup). Needs neither Django nor a database.

    {"state": "running" | "done" | "failed", "pid", "born", "started_at", "finished_at", "file", "error", "last": {...}}

`born` tells the process from a later one that was given its pid, as happens when a machine or container starts anew.
`last` is the newest backup that succeeded, also after later ones failed. Who starts a process for a backup writes the
running entry for it, so that one that dies before its first word has failed too.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from registry.errors import Conflict

BACKUP_JOB = "strop.backup"  # its handler is strop.backup.job
BETWEEN = timedelta(minutes=10)  # of two backups that are asked for on a page
MOST_KEPT = 5  # in the home; a page makes no more until one is moved away
TIME = "%Y-%m-%dT%H:%M:%SZ"


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
        if found["state"] == "running" and not _is_alive(found["pid"], found.get("born")):
            found |= {"state": "failed", "error": "the process that made it was ended"}
        return found

    @contextlib.contextmanager
    def begun(self, target: Path) -> Iterator["Journal"]:
        """Raises BackupUnderWay. What fails inside is written down and raised on."""
        before = self.read()
        is_announced = before.get("pid") == os.getpid() and before.get("file") == str(target)
        if before.get("state") == "running" and not is_announced:
            raise BackupUnderWay(f"a backup to {before['file']} is under way, pid {before['pid']}")
        self._begin(target, os.getpid(), before)
        try:
            yield self
        except BaseException as error:
            self._entry |= {"state": "failed", "finished_at": _now(), "error": str(error)[:2000] or repr(error)}
            self._write()
            raise

    def announce(self, target: Path, pid: int) -> None:
        """The running entry of a process that was just started, unless it, or another one, has written meanwhile."""
        before = self.read()
        if before.get("state") != "running" and before.get("file") != str(target):
            self._begin(target, pid, before)

    def done(self, made: Mapping[str, Any]) -> None:
        self._entry |= {"state": "done", "finished_at": _now(), "last": dict(made)}
        self._write()

    def _begin(self, target: Path, pid: int, before: Mapping[str, Any]) -> None:
        self._entry = {
            "state": "running",
            "pid": pid,
            "born": _born(pid),
            "started_at": _now(),
            "finished_at": None,
            "file": str(target),
            "error": "",
            "last": before.get("last"),
        }
        self._write()

    def _write(self) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self.path.with_suffix(".new")
        draft.write_text(json.dumps(self._entry, indent=1))
        draft.rename(self.path)


def check_may_begin(home: Path) -> None:
    """For one that a person asks for on a page. Raises Conflict saying why not now."""
    said = Journal(home / "run").read()
    if said.get("state") == "running":
        raise Conflict("a backup is under way")
    if said.get("state") == "done" and datetime.now(UTC) - _time(said["started_at"]) < BETWEEN:
        minutes = BETWEEN // timedelta(minutes=1)
        raise Conflict(f"the last backup began less than {minutes} minutes ago; wait a little")
    if len(list((home / "backups").glob("*.tar.zst"))) >= MOST_KEPT:
        raise Conflict(f"{MOST_KEPT} backups lie in the home already; whoever runs Strop has to move some away first")


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
            at = f"{datetime.fromtimestamp(stat.st_mtime, UTC):{TIME}}"
            found.append({"created_at": at, **said, "file": str(path), "bytes": stat.st_size})
    return sorted(found, key=lambda one: str(one["created_at"]), reverse=True)


def _is_alive(pid: int, born: int | None) -> bool:
    return born is not None and _born(pid) == born


def _born(pid: int) -> int | None:
    """Clock ticks from the machine's start to the process'; None when it has ended, also as a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else int(fields[19])


def _now() -> str:
    return f"{datetime.now(UTC):{TIME}}"


def _time(text: str) -> datetime:
    return datetime.strptime(text, TIME).replace(tzinfo=UTC)
