"""Making a policy of a model from outside, in the background: job `rl_online.import_policy`.

The model store is a process of its own, because it may need torch and minutes; it outlives the job's slice of a
worker's time. The job looks after it: it starts the store, follows what it says, starts it again when it was killed,
and makes its folder version 1 of the policy. Whether the store lives is said by a lock that it holds, by nothing else.
"""

import contextlib
import fcntl
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from jobs.services import ClaimedJob, NotYet, enqueue
from registry.errors import Conflict, InvalidInput, StropError
from registry.models import Policy
from registry.services import audit
from registry.tenancy import tenant
from rl_online.models import ImportState, LearningPlan, PolicyImport
from rl_online.services.plans import PLAN_FIELDS, check_plan, start_policy

IMPORT_JOB = "rl_online.import_policy"
DEFAULT_MODEL = "smollm2"
LOOK_AGAIN_S = 1.0
MAX_STARTS = 3
POLICY_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,59}")
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}(@[\w.-]{1,100})?")
NOTE = "note: "

_stores: list[subprocess.Popen[bytes]] = []  # children of this process, so that ended ones are reaped


def request_import(name: str, source: str, *, actor: str, plan: Mapping[str, Any] | None = None) -> PolicyImport:
    """Inside a tenant. Raises InvalidInput naming the field, Conflict for a name that is taken."""
    name, source = name.strip(), source.strip()
    if not POLICY_NAME.fullmatch(name):
        raise InvalidInput("use up to 60 small letters, digits, - and _, e.g. editor", field="name")
    if (
        Policy.objects.filter(name=name).exists()
        or PolicyImport.objects.filter(name=name, state__in=[ImportState.QUEUED, ImportState.STORING]).exists()
    ):
        raise Conflict(f"policy {name!r} exists in this project, or is being made; choose another name", field="name")
    _check_source(source)
    unknown = sorted(set(plan or {}) - PLAN_FIELDS)
    if unknown:
        raise InvalidInput(f"unknown; known are {', '.join(sorted(PLAN_FIELDS))}", field=unknown[0])
    check_plan(LearningPlan(**(plan or {})))
    row = PolicyImport.objects.create(name=name, source=source, plan=dict(plan or {}), requested_by=actor)
    audit("ask for", "policy", name, actor=actor, after={"source": source})
    enqueue(IMPORT_JOB, project_id=row.project_id, payload={"import": str(row.id)}, key=str(row.id))
    return row


def import_job(job: ClaimedJob) -> None:
    assert job.project_id is not None
    with tenant(job.project_id):
        row = PolicyImport.objects.get(id=job.payload["import"])
    if ImportState(row.state).is_over:
        return
    result = _result(row)
    if result is None:
        _look_after(job.project_id, row)
        raise NotYet(LOOK_AGAIN_S, f"the model store works on {row.source}")
    changes: dict[str, Any] = {"progress": "", "notes": _notes(row)}
    if "error" in result:
        changes |= {"state": ImportState.FAILED, "error": result["error"][:4000]}
    else:
        try:
            policy = start_policy(
                job.project_id,
                name=row.name,
                folder=Path(result["folder"]),
                source=row.source,
                actor=row.requested_by,
                **row.plan,
            )
            changes |= {"state": ImportState.REGISTERED, "policy": policy}
        except StropError as error:
            changes |= {"state": ImportState.FAILED, "error": error.message}
    with job.effect(), tenant(job.project_id):
        PolicyImport.objects.filter(id=row.id).update(finished_at=timezone.now(), **changes)
    _forget_files(row)


def _check_source(source: str) -> None:
    """A folder must lie where web may look; what is there is the store's to check."""
    if source == DEFAULT_MODEL:
        return
    if "\0" in source or not source:
        raise InvalidInput("give the path of a folder on this machine, or owner/name on the hub", field="source")
    if not source.startswith(("/", "~", ".")):
        if not HUB_NAME.fullmatch(source):
            raise InvalidInput(f"found {source[:80]!r}; write owner/name, a whole path, or smollm2", field="source")
        return
    folder = Path(source)
    allowed = [Path(root).resolve() for root in settings.MODEL_ROOTS]
    if not folder.is_absolute() or not any(folder.resolve().is_relative_to(root) for root in allowed):
        raise InvalidInput("give a whole path below one of the folders in STROP_MODEL_ROOTS", field="source")
    if not folder.is_dir():
        raise InvalidInput("there is no such folder on the machine that Strop runs on", field="source")


def _look_after(project_id: UUID, row: PolicyImport) -> None:
    """Start the store unless it runs, and keep what it said last. Raises nothing for a store that failed."""
    changes: dict[str, Any] = {"state": ImportState.STORING, "progress": _last_line(row)}
    with _free_lock(row) as lock:
        if lock is not None and _result(row) is None:
            if row.num_starts >= MAX_STARTS:
                _write_result(row, f"the model store ended {MAX_STARTS} times without a word; is there memory enough?")
                return
            changes |= {"num_starts": row.num_starts + 1, "progress": "starting"}
            _start(row, lock)
    with tenant(project_id):
        PolicyImport.objects.filter(id=row.id).update(**changes)


def _start(row: PolicyImport, lock: int) -> None:
    _stores[:] = [one for one in _stores if one.poll() is None]
    command = [sys.executable, "-m", "rl_online.commands.store", str(settings.HOME.models), row.source]
    with _file(row, "log").open("wb") as log:
        # The child holds the lock for as long as it lives: the descriptor is its own copy of this one.
        child = subprocess.Popen(
            [*command, "--result", str(_file(row, "json"))],
            stdout=subprocess.DEVNULL,
            stderr=log,
            pass_fds=[lock],
        )
    _stores.append(child)


@contextlib.contextmanager
def _free_lock(row: PolicyImport) -> Iterator[int | None]:
    """The lock's descriptor when no store holds it; None while one works."""
    descriptor = os.open(_file(row, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield descriptor
    finally:
        os.close(descriptor)


def _file(row: PolicyImport, suffix: str) -> Path:
    folder = settings.HOME.models / ".imports"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{row.id}.{suffix}"


def _result(row: PolicyImport) -> dict[str, str] | None:
    try:
        return json.loads(_file(row, "json").read_text())
    except FileNotFoundError:
        return None


def _write_result(row: PolicyImport, error: str) -> None:
    _file(row, "json").write_text(json.dumps({"error": error}))


def _lines(row: PolicyImport) -> list[str]:
    try:
        text = _file(row, "log").read_bytes()[-20_000:].decode(errors="replace").replace("\0", "\ufffd")
    except FileNotFoundError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()]


def _last_line(row: PolicyImport) -> str:
    said = [line for line in _lines(row) if not line.startswith(NOTE)]
    return said[-1][:500] if said else "starting"


def _notes(row: PolicyImport) -> list[str]:
    return [line.removeprefix(NOTE) for line in _lines(row) if line.startswith(NOTE)]


def _forget_files(row: PolicyImport) -> None:
    for suffix in ("json", "log", "lock"):
        _file(row, suffix).unlink(missing_ok=True)
