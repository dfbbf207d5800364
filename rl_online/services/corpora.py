"""Corpora for mid-training: asked for by name, made by the updater, kept as folders named by what is in them.

Job `rl_online.build_corpus` takes slices of the updater's time, so that an update never waits long; the build goes on
where it was left. Not here: how files become rows (rl_online.corpus), and training on them (services.stages.midtrain).
"""

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Max, QuerySet
from django.utils import timezone

from evals.models import Problem
from evals.overlap import Text, asked_text, hashed
from jobs import crash
from jobs.models import Job, JobState
from jobs.services import ClaimedJob, NotYet, enqueue
from registry.errors import Conflict, InvalidInput, NotFound
from registry.models import Deployment, Policy
from registry.services import audit
from registry.tenancy import tenant
from rl_online.corpus.build import BuildRequest, build_corpus, forget_build
from rl_online.corpus.documents import RECORDS
from rl_online.corpus.errors import CorpusError
from rl_online.corpus.leaks import Problems
from rl_online.corpus.recipe import Recipe
from rl_online.corpus.tokens import Cutter
from rl_online.models import Corpus, CorpusState
from rl_online.services.plans import folder_of
from rl_online.training.general_texts import general_documents

log = logging.getLogger(__name__)

CORPUS_JOB = "rl_online.build_corpus"
SLICE_S = 120.0  # of the updater's time, at least a shard or the documents that end one
TELL_EVERY_S = 2.0
MAX_ATTEMPTS = 3
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,59}")
OPEN = (CorpusState.QUEUED, CorpusState.BUILDING)


def add_corpus(
    name: str, source: str, policy: Policy, *, options: Mapping[str, Any] | None = None, actor: str
) -> Corpus:
    """Ask for the next version of `name`, made of what lies at `source` on this machine. Inside a tenant.

    `options` are fields of the recipe. Raises InvalidInput naming the field, Conflict while that name is being made.
    """
    if not NAME.fullmatch(name):
        raise InvalidInput("use up to 60 small letters, digits, - and _, e.g. our-code", field="name")
    path = checked_source(source)
    checkpoint = Deployment.objects.select_related("checkpoint").get(policy=policy, alias="default").checkpoint
    try:
        recipe = Recipe.from_json(options or {})
        Cutter(folder_of(checkpoint), recipe)
    except CorpusError as error:
        raise InvalidInput(str(error), field="options") from None
    if Corpus.objects.filter(name=name, state__in=OPEN).exists():
        raise Conflict(f"{name} is being made; wait until it is ready", field="name")
    last = Corpus.objects.filter(name=name).aggregate(last=Max("version"))["last"] or 0
    try:
        with transaction.atomic():
            row = Corpus.objects.create(
                name=name,
                version=last + 1,
                made_for=checkpoint,
                source=str(path),
                recipe=recipe.to_json(),
                requested_by=actor,
            )
    except IntegrityError:
        raise Conflict(f"{name} is being made; wait until it is ready", field="name") from None
    audit("ask for", "corpus", row, actor=actor, after={"source": row.source, "recipe": row.recipe})
    enqueue(CORPUS_JOB, project_id=row.project_id, payload={"corpus": str(row.id)}, key=str(row.id))
    return row


def checked_source(source: str) -> Path:
    """Where `source` leads, which lies below the one folder that may be read. Raises InvalidInput."""
    if not settings.CORPUS_ROOT:
        raise InvalidInput(
            "this server reads no files: set STROP_CORPUS_ROOT to the folder that corpora may be made of",
            field="source",
        )
    root = Path(settings.CORPUS_ROOT).resolve()
    if "\0" in source:
        raise InvalidInput("give a path", field="source")
    path = (root / source).resolve()
    if not path.is_relative_to(root):
        raise InvalidInput("it lies outside of STROP_CORPUS_ROOT; only what is below it may be read", field="source")
    if not path.is_dir() and not (path.is_file() and path.name.lower().endswith(RECORDS)):
        raise InvalidInput(
            f"on the machine of the server there is no such folder, and no file in {', '.join(RECORDS)}", field="source"
        )
    return path


def find_corpus(name: str) -> Corpus:
    """`name@version`, or the newest that is ready of a name, else its newest. Raises NotFound. Inside a tenant."""
    rows = Corpus.objects.select_related("made_for__policy")
    name, at, version = name.partition("@")
    if at:
        found = rows.filter(name=name, version=version).first() if version.isdecimal() else None
    else:
        found = usable(rows.filter(name=name)).first() or rows.filter(name=name).order_by("-version").first()
    if found is None:
        raise NotFound(f"there is no corpus {name}{at}{version}; strop corpus list shows all")
    return found


def usable(rows: "QuerySet[Corpus]") -> "QuerySet[Corpus]":
    """Those that can be trained on, newest first."""
    return rows.filter(state=CorpusState.READY, files_deleted_at__isnull=True).order_by("-created_at", "-version")


def folder_of_corpus(row: Corpus) -> Path:
    """Of one that is ready."""
    assert row.digest
    return _root(row) / row.digest


def work_folder(row: Corpus) -> Path:
    """Of its build; gone when that is over."""
    return _root(row) / f".building-{row.id}"


def _root(row: Corpus) -> Path:
    return settings.HOME.corpora / str(row.project_id)


def build_job(job: ClaimedJob, *, beat: Callable[[], None], is_stopping: Callable[[], bool]) -> None:
    """Make one corpus, or as much of it as fits into a slice. Raises NotYet where it does not."""
    assert job.project_id is not None
    project_id, row_id = job.project_id, UUID(job.payload["corpus"])
    with tenant(project_id):
        Corpus.objects.filter(id=row_id, state=CorpusState.QUEUED).update(state=CorpusState.BUILDING)
        row = Corpus.objects.select_related("made_for").filter(id=row_id, state=CorpusState.BUILDING).first()
        if row is None:
            return
        problems = Problems(_problems())
    deadline = time.monotonic() + SLICE_S
    try:
        made = build_corpus(
            BuildRequest(
                source=checked_source(row.source),
                root=_root(row),
                work=work_folder(row),
                checkpoint=folder_of(row.made_for),
                recipe=Recipe.from_json(row.recipe),
                problems=problems,
            ),
            crash=crash.point,
            should_stop=lambda: time.monotonic() > deadline,
            watch=_telling(project_id, row_id, beat, is_stopping),
        )
    except NotYet:
        raise
    except (CorpusError, InvalidInput) as error:
        outcome: dict[str, Any] = {"state": CorpusState.FAILED, "error": str(error)[:4000]}
    except Exception as error:  # a full disk may have room again; what fails each time is an answer
        if job.attempts < MAX_ATTEMPTS:
            raise
        log.exception("corpus %s failed", row)
        outcome = {"state": CorpusState.FAILED, "error": f"{type(error).__name__}: {error}"[:4000]}
    else:
        if made is None:
            raise NotYet(0, f"makes {row}")
        outcome = {
            "state": CorpusState.READY,
            "digest": made.digest,
            "facts": made.facts,
            "num_rows": made.num_rows,
            "num_tokens": made.num_tokens,
        }
    with job.effect(), tenant(project_id):
        Corpus.objects.filter(id=row_id).update(finished_at=timezone.now(), progress={}, **outcome)
    forget_build(work_folder(row))
    log.info("corpus %s is %s", row, outcome["state"])


def fail_abandoned_corpora() -> None:
    """Those that no job makes any more have failed; the job's last error, where there is one, says why.

    Inside a tenant.
    """
    for row in Corpus.objects.filter(state__in=OPEN):
        jobs = Job.objects.filter(project_id=row.project_id, kind=CORPUS_JOB, payload__corpus=str(row.id))
        if jobs.filter(state__in=[JobState.QUEUED, JobState.RUNNING]).exists():
            continue
        last = jobs.filter(state=JobState.QUARANTINED).order_by("-id").first()
        error = last.last_error[-4000:] if last else "its job is gone; ask for it again"
        # A build that ended since the look is over: its state and its job change at once.
        failed = Corpus.objects.filter(pk=row.pk, state__in=OPEN)
        if failed.update(state=CorpusState.FAILED, error=error, finished_at=timezone.now(), progress={}):
            forget_build(work_folder(row))


def _telling(
    project_id: UUID, row_id: UUID, beat: Callable[[], None], is_stopping: Callable[[], bool]
) -> Callable[[Counter[tuple[str, str]]], None]:
    """Writes how far a build is, now and then; gives the job back at once where the process is told to stop."""
    next_at = time.monotonic()

    def tell(counts: Counter[tuple[str, str]]) -> None:
        nonlocal next_at
        if is_stopping():
            raise NotYet(0, "the updater stops")
        if time.monotonic() < next_at:
            return
        next_at = time.monotonic() + TELL_EVERY_S
        beat()
        told: Counter[str] = Counter()
        for (_, what), number in counts.items():
            told["dropped" if what.startswith("dropped ") else what] += number
        progress = {name: told[name] for name in ("documents", "tokens", "dropped")}
        with tenant(project_id):
            Corpus.objects.filter(id=row_id).update(progress=progress)

    return tell


def _problems() -> Iterator[Text]:
    """Of every benchmark of the project, and of the texts that the gate measures forgetting on."""
    for prompt, messages in Problem.objects.values_list("prompt", "messages").iterator(500):
        yield hashed(asked_text(prompt, messages))
    for document in general_documents(settings.HOME.texts):
        yield hashed(document.text)
