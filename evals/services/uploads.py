"""Files that a person uploads: imported at once when they are small, else by a job that says how far it is.

What became of a job's files is kept in its row for as long as finished jobs are (two days); the runs stay. Files wait
under the home folder, which the web and its workers share, and are deleted when they were read.
"""

import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID, uuid4

from django.conf import settings

from evals.importers import registry
from evals.services.importing import Report, import_path
from jobs.models import Job, JobState
from jobs.services import ClaimedJob, enqueue
from registry.errors import InvalidInput, NotFound, TooLarge

UPLOAD_JOB = "evals.import-upload"
MAX_BYTES = 256 * 1024 * 1024  # of all files of one upload
MAX_FILES = 50
INLINE_BYTES = 2 * 1024 * 1024  # more is left to a job
PACKED = (".eval", ".gz", ".zip", ".zst", ".bz2", ".xz")
PACKED_FACTOR = 20  # how much more a packed file is taken to hold
PROGRESS_S = 1.0
FORGET_S = 7 * 24 * 3600.0  # files whose job never came to read them


class Sent(Protocol):
    """A file of a form."""

    name: str | None
    size: int | None

    def chunks(self) -> Iterator[bytes]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of an upload, or how far it is."""

    state: str  # done | queued | running | refused | failed
    job: int | None = None  # None: it was imported at once
    names: Sequence[str] = ()
    num_read: int = 0  # results read so far of the run that is being read
    imported: Sequence[dict[str, Any]] = ()  # as evals.services.importing.Imported
    refused: Sequence[dict[str, Any]] = ()
    unknown: Sequence[str] = ()
    error: str = ""

    @property
    def is_open(self) -> bool:
        return self.state in ("queued", "running")


def take(project_id: UUID, files: Sequence[Sent], *, mapping: Sent | None = None, format: str | None = None) -> Outcome:
    """Import, or leave it to a job. Raises InvalidInput for what cannot be read, TooLarge for what is too much.

    Inside a transaction of the caller, which keeps either all of an upload or nothing.
    """
    sizes = _checked(files, mapping, format)
    names = [_name_of(file) for file in files]
    if sum(sizes) <= INLINE_BYTES:
        with tempfile.TemporaryDirectory(prefix="strop-upload-") as folder:
            place = Path(folder)
            _write(place, files, names, mapping)
            return _outcome(_read(project_id, place, names, format), names)
    place = _waiting() / uuid4().hex
    place.mkdir(mode=0o700, parents=True)
    try:
        _write(place, files, names, mapping)
        payload = {"folder": place.name, "names": names, "format": format}
        job = enqueue(UPLOAD_JOB, project_id=project_id, payload=payload)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    return Outcome(state="queued", job=job, names=names)


def outcome_of(project_id: UUID, job_id: int) -> Outcome:
    """Raises NotFound, also when it is so long ago that the job is forgotten."""
    job = Job.objects.filter(pk=job_id, kind=UPLOAD_JOB, project_id=project_id).first()
    if job is None:
        raise NotFound("no such upload; what became of one is kept for two days")
    names, report = job.payload["names"], job.payload.get("report")
    if report is not None:
        return Outcome(job=job.pk, names=names, **report)
    if job.state == JobState.QUARANTINED:
        last_line = job.last_error.strip().rsplit("\n", 1)[-1]
        return Outcome(state="failed", job=job.pk, names=names, error=last_line)
    state = "running" if job.state == JobState.RUNNING else "queued"
    return Outcome(state=state, job=job.pk, names=names, num_read=job.payload.get("num_read", 0))


def upload_job(job: ClaimedJob) -> None:
    """Read the files; what cannot be read is the outcome, not a failure to be tried again."""
    assert job.project_id is not None, "an upload belongs to a project"
    payload, told_at = job.payload, 0.0
    place = _waiting() / Path(payload["folder"]).name

    def tell(num_read: int) -> None:
        nonlocal told_at
        if time.monotonic() - told_at > PROGRESS_S:
            told_at = time.monotonic()
            Job.objects.filter(pk=job.id, fence=job.fence).update(payload=payload | {"num_read": num_read})

    try:
        report = _read(job.project_id, place, payload["names"], payload["format"], on_progress=tell)
        found = _outcome(report, payload["names"])
    except InvalidInput as error:
        found = Outcome(state="refused", error=error.message)
    kept = {name: value for name, value in asdict(found).items() if name not in ("job", "names")}
    with job.effect():
        Job.objects.filter(pk=job.id).update(payload=payload | {"report": kept})
    shutil.rmtree(place, ignore_errors=True)


def forget_uploads() -> None:
    """Delete files that no job has read for a week."""
    for place in _waiting().glob("*"):
        if time.time() - place.stat().st_mtime > FORGET_S:
            shutil.rmtree(place, ignore_errors=True)


def _waiting() -> Path:
    return Path(settings.HOME.root) / "uploads"


def _checked(files: Sequence[Sent], mapping: Sent | None, format: str | None) -> list[int]:
    """Sizes, those of packed files as what they may hold. Raises InvalidInput and TooLarge."""
    if not files:
        raise InvalidInput("choose a file: a log or results file of one of the known formats", field="files")
    if len(files) > MAX_FILES:
        raise InvalidInput(f"{len(files)} files; send at most {MAX_FILES} at once", field="files")
    if format is not None and format not in registry.formats():
        raise InvalidInput(f"no format {format[:40]!r}; choose one of {', '.join(registry.formats())}", field="format")
    if format is not None and len(files) > 1:
        raise InvalidInput(
            "a format is named for one file; send them one by one, or let it be recognised", field="format"
        )
    if mapping is not None and len(files) > 1:
        raise InvalidInput("a mapping belongs to one table; send one file with it", field="mapping")
    total = sum(file.size or 0 for file in [*files, *([mapping] if mapping else [])])
    if total > MAX_BYTES:
        raise TooLarge(
            f"{files[0].name} and what came with it are {total / 2**20:,.0f} MiB; the browser takes "
            f"{MAX_BYTES // 2**20} MiB. Import larger ones with `strop import runs`, which reads them where they lie",
            field="files",
        )
    return [_weight(file) for file in files]


def _weight(file: Sent) -> int:
    is_packed = (file.name or "").lower().endswith(PACKED)
    return (file.size or 0) * (PACKED_FACTOR if is_packed else 1)


def _name_of(file: Sent) -> str:
    """The file's own name, which formats are recognised by, without what could lead elsewhere."""
    last = (file.name or "").replace("\\", "/").rsplit("/", 1)[-1]
    return re.sub(r"[^\w.@+=,()~ -]", "_", last, flags=re.ASCII)[-150:].lstrip(". ") or "upload"


def _write(place: Path, files: Sequence[Sent], names: Sequence[str], mapping: Sent | None) -> None:
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InvalidInput(f"two files are named {twice}; rename one", field="files")
    (place / "files").mkdir()
    for file, name in zip(files, names, strict=True):
        _write_one(place / "files" / name, file)
    if mapping is not None:
        _write_one(place / "mapping.json", mapping)


def _write_one(path: Path, file: Sent) -> None:
    with path.open("wb") as out:
        for chunk in file.chunks():
            out.write(chunk)


def _read(
    project_id: UUID, place: Path, names: Sequence[str], format: str | None, *, on_progress: Any = None
) -> Report:
    folder, mapping = place / "files", place / "mapping.json"
    if not folder.is_dir():
        raise InvalidInput(
            "the uploaded files are not where this worker looks: web and workers must share one home folder",
            field="files",
        )
    path = folder / names[0] if len(names) == 1 else folder
    try:
        return import_path(
            project_id, path, format=format, mapping=mapping if mapping.exists() else None, on_progress=on_progress
        )
    except InvalidInput as error:
        text = error.message.replace(f"{folder}/", "").replace(str(folder), "the upload")
        is_named = any(name in text for name in names) or len(names) > 1
        raise InvalidInput(text if is_named else f"{names[0]}: {text}", field="files") from None


def _outcome(report: Report, names: Sequence[str]) -> Outcome:
    return Outcome(
        state="done",
        names=names,
        imported=[asdict(one) | {"id": str(one.id)} for one in report.imported],
        refused=[{"path": Path(one.path).name, "reason": one.reason} for one in report.refused],
        unknown=[Path(path).name for path in report.unknown],
    )
