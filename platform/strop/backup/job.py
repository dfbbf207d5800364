"""Job `strop.backup`: a backup that a person asked for on a page, made by a process of its own.

It may take longer than a worker's task is allowed to, so the job starts it, looks again every few seconds, and is done
when the process is.
"""

import os
import subprocess
import sys
from pathlib import Path

from django.conf import settings

from jobs import crash
from jobs.services import ClaimedJob, NotYet
from registry.backups import Journal
from strop.backup.make import SUFFIX

LOOK_AGAIN_S = 3.0


class BackupFailed(RuntimeError):
    """The process that made it said why."""


def backup_job(job: ClaimedJob) -> None:
    """`payload`: `stamp`, part of the file's name, and `level`. A failed attempt is made again under another name.

    What an attempt has made stands also when the worker that started it died, which counts as an attempt of its own.
    """
    name = f"strop-{job.payload['stamp']}"
    target = settings.HOME.root / "backups" / f"{name}{'' if job.attempts == 1 else f'-{job.attempts}'}{SUFFIX}"
    journal = Journal(settings.HOME.run)
    said = journal.read()
    if said.get("state") == "running":
        raise NotYet(LOOK_AGAIN_S, f"a backup to {said['file']} is under way")
    if said.get("state") == "done" and Path(said["file"]).name.startswith(name):
        return
    if said.get("file") == str(target):
        raise BackupFailed(said["error"])
    pid = _start(target, level=job.payload.get("level", "all"))
    crash.point("backup.before_announce")
    journal.announce(target, pid)
    raise NotYet(LOOK_AGAIN_S, "the backup has begun")


def _start(target: Path, *, level: str) -> int:
    """Its pid. It outlives this worker process, and ends with the supervisor."""
    log = settings.HOME.logs / "backup.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "strop.cli", "backup", str(target), "--with-checkpoints", level, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, "STROP_HOME": str(settings.HOME.root)},
            cwd="/",
        )
    return process.pid
