"""What runs here and what it takes: processes, disk, backups, versions, the sandbox, jobs that were given up.

Read from rows, from the supervisor's state file and from the home folder itself. Inside a tenant where it says so.
"""

import json
import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection
from django.utils import timezone

from evals.models import Score
from jobs.models import Job, JobState, ProcessBeat
from registry.backups import Journal, made_backups
from registry.tenancy import current_project_id
from rl_online.models import EngineReport

SILENT_AFTER = timedelta(seconds=60)
SUPERVISED = ("postgres", "valkey", "web", "worker", "beat", "engine", "updater")
WHAT = {
    "postgres": "the truth: every row",
    "valkey": "rings for jobs",
    "web": "pages, API and gateway",
    "worker": "labels, scores, proves",
    "beat": "asks for the sweep",
    "engine": "answers completions (serving)",
    "updater": "trains (learning)",
}
PACKAGES = ("Django", "celery", "psycopg", "torch", "transformers", "plotly")


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """One process of the product, on this machine or another."""

    kind: str
    name: str
    what: str
    state: str  # alive | silent | stopped | unknown
    pid: int | None
    version: str
    started_at: datetime | None
    seen_at: datetime | None  # its last sign of life; None: it gives none, and the supervisor watches it
    restarts: int | None  # since the supervisor started; None: not supervised from here

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, kw_only=True, slots=True)
class DiskUse:
    kind: str
    what: str
    bytes: int | None  # None: it cannot be measured from here
    files: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Backup:
    """One archive in the home's own folder."""

    at: datetime  # of its snapshot
    name: str
    level: str | None  # whose files it holds; None, as the next: made by hand, or its description is gone
    rows: int | None
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenUp:
    """A job that failed five times."""

    pk: int
    kind: str
    created_at: datetime
    error: str  # the whole traceback of the last attempt
    last_line: str


def supervisor_state() -> dict[str, Any]:
    """What the supervisor of this home wrote; {} when none runs."""
    try:
        state = json.loads((settings.HOME.run / "state.json").read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return state if state.get("running") and Path(f"/proc/{state['pid']}").exists() else {}


def processes(engines: list[EngineReport]) -> list[Process]:
    """Every process that the supervisor runs or that has given a sign of life lately, in the order of SUPERVISED."""
    supervised = {row["name"]: row for row in supervisor_state().get("processes", [])}
    beats = list(ProcessBeat.objects.order_by("kind", "name"))
    reports = {report.pid: report for report in engines}
    found: list[Process] = []
    for kind in SUPERVISED:
        mine = [beat for beat in beats if beat.kind == kind]
        row = supervised.pop(kind, None)
        found += [_from_beat(beat, row) for beat in mine if row is None or beat.pid == row["pid"]]
        if row is not None and not any(beat.pid == row["pid"] for beat in mine):
            found.append(_from_supervisor(row, reports.get(row["pid"])))
    local = {one.pid for one in found if one.kind == "engine"}
    found += [_from_report(report) for report in engines if report.pid not in local]
    return found


def _from_beat(beat: ProcessBeat, row: dict[str, Any] | None) -> Process:
    is_alive = beat.seen_at > timezone.now() - SILENT_AFTER
    return Process(
        kind=beat.kind,
        name=beat.name,
        what=WHAT.get(beat.kind, ""),
        state="alive" if is_alive else "silent",
        pid=beat.pid,
        version=beat.version,
        started_at=beat.started_at,
        seen_at=beat.seen_at,
        restarts=row["restarts"] if row else None,
    )


def _from_supervisor(row: dict[str, Any], report: EngineReport | None) -> Process:
    is_alive = row["pid"] is not None and Path(f"/proc/{row['pid']}").exists()
    return Process(
        kind=row["name"],
        name=row["name"],
        what=WHAT.get(row["name"], ""),
        state="alive" if is_alive else "stopped",
        pid=row["pid"],
        version=report.code_version if report else "",
        started_at=_moment(row["started_at"]) if row["started_at"] else None,
        seen_at=report.reported_at if report else None,
        restarts=row["restarts"],
    )


def _from_report(report: EngineReport) -> Process:
    now = timezone.now()
    return Process(
        kind="engine",
        name=f"{report.engine}@{report.host}" if report.host else report.engine,
        what=WHAT["engine"],
        state="alive" if report.reported_at > now - SILENT_AFTER else "silent",
        pid=report.pid,
        version=report.code_version,
        started_at=None if report.uptime_s is None else report.reported_at - timedelta(seconds=report.uptime_s),
        seen_at=report.reported_at,
        restarts=None,
    )


def engine_reports() -> list[EngineReport]:
    """Inside a tenant."""
    return list(EngineReport.objects.order_by("engine"))


def disk() -> list[DiskUse]:
    """By kind; a file that is linked twice counts where it is met first."""
    home, seen = settings.HOME, set[tuple[int, int]]()
    policies = _folders(home.checkpoints)
    places = [
        ("checkpoints", "weights", [path for policy in policies for path in policy.glob("v*")]),
        ("optimizer state", "what an update goes on from", [policy / "train" for policy in policies]),
        ("deltas", "what engines pull", [policy / "deltas" for policy in policies]),
        ("batches", "what was learnt from", [home.batches]),
        ("corpora", "what mid-training reads", [home.corpora]),
        ("models", "where policies begin", [home.models]),
        ("engine cache", "weights that the engine has fetched", [home.root / "engine"]),
        ("logs", "", [home.logs]),
        ("backups", "in the home; others are elsewhere", [home.root / "backups"]),
    ]
    uses = [DiskUse(kind="database", what="rows and indexes", bytes=_database_bytes(), files=None)]
    for kind, what, folders in places:
        count, size = _measure(folders, seen)
        uses.append(DiskUse(kind=kind, what=what, bytes=size, files=count))
    return uses


def free_bytes() -> int:
    return shutil.disk_usage(settings.HOME.root).free


def backups() -> list[Backup]:
    """Those in the home, newest first."""
    return [
        Backup(
            at=_moment(one["created_at"]),
            name=Path(one["file"]).name,
            level=one.get("level"),
            rows=one.get("rows"),
            bytes=one["bytes"],
        )
        for one in made_backups(settings.HOME.root / "backups")[:20]
    ]


def backup_journal() -> dict[str, Any]:
    return Journal(settings.HOME.run).read()


def given_up_jobs() -> list[GivenUp]:
    """Of this project, newest first. Inside a tenant."""
    mine = Job.objects.filter(project_id=current_project_id(), state=JobState.QUARANTINED)
    return [
        GivenUp(
            pk=job.pk,
            kind=job.kind,
            created_at=job.created_at,
            error=job.last_error,
            last_line=(job.last_error.strip().splitlines() or ["no reason was given"])[-1],
        )
        for job in mine.order_by("-id")[:50]
    ]


def sandbox_level() -> str | None:
    """What the newest scored answer of this project was run in; None when nothing was run yet. Inside a tenant."""
    scores = Score.objects.exclude(sandbox_level="").order_by("-id")
    return scores.values_list("sandbox_level", flat=True).first()


@cache
def versions() -> dict[str, str]:
    """Of our code, Python and what matters most below us; the database server's apart."""
    found = {"Strop": settings.CODE_VERSION, "Python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def database_version() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        return str(cursor.fetchone()[0]).split()[0]


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _database_bytes() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        return int(cursor.fetchone()[0])


def _folders(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


def _measure(folders: list[Path], seen: set[tuple[int, int]]) -> tuple[int, int]:
    count = size = 0
    for folder in folders:
        for entry in _files(folder):
            stat = entry.stat(follow_symlinks=False)
            if (stat.st_dev, stat.st_ino) not in seen:
                seen.add((stat.st_dev, stat.st_ino))
                count, size = count + 1, size + stat.st_size
    return count, size


def _files(folder: Path) -> Iterator[os.DirEntry[str]]:
    """What disappears while it is listed is not there."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _files(Path(entry.path))
                else:
                    yield entry
    except FileNotFoundError:
        return
