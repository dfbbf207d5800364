"""Keeping runs and comparisons that were made elsewhere.

A run is RUNNING until its file is read to the end; when the importer is killed before, importing again goes on. What is
stored already is found by (source, run, problem, repeat, scorer): the same file changes nothing, a file that has grown
adds what is new, and a result that differs from the one kept stays out and is counted. A file that turns out to be
unreadable leaves nothing behind.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import msgspec
from django.utils import timezone

from evals.importers import generic, reading, registry
from evals.importers.errors import Unreadable
from evals.importers.record import Battles, Note, Run, Source
from evals.models import ComparisonSet, EvalRun, RunState, Score
from evals.services.imported_checks import MAX_SCORER
from evals.services.imported_rows import ComparisonsOf, ScoresOf, benchmark_of
from evals.services.imported_standings import request_standings
from evals.services.raw_records import characters, fitted, storable, storable_text
from registry.errors import InvalidInput
from registry.tenancy import tenant

BATCH = 500  # rows of one transaction
BATCH_CHARACTERS = 32 * 1024**2  # of their records: few large ones fill memory as well as many small ones
MAX_NOTES = 200

Outcome = Literal["imported", "extended", "unchanged"]
Progress = Callable[[int], None]  # results read so far, of one run


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """What became of one run, or of the comparisons of one file."""

    kind: Literal["run", "comparisons"]
    id: UUID
    benchmark: str  # <benchmark>@<version>
    name: str | None  # the model or checkpoint; None for comparisons, or where the file names none
    outcome: Outcome
    num_new: int
    num_known: int  # there already, and the same
    num_conflicts: int  # there already, and different: what was there stays


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    path: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What became of all that lay at a path."""

    imported: Sequence[Imported]
    refused: Sequence[Refused]  # files of a known format that cannot be read
    unknown: Sequence[str]  # files that no importer recognises


def import_path(
    project_id: UUID,
    path: Path,
    *,
    format: str | None = None,
    mapping: Path | None = None,
    on_progress: Progress | None = None,
) -> Report:
    """Import a file, or all that a folder holds. Raises InvalidInput where there is nothing to read.

    A file that cannot be read does not keep the others out, unless it is the only one: then it raises InvalidInput.
    `mapping` is a JSON file that says which column of a table is what, see evals.importers.generic.
    """
    try:
        if mapping is not None:
            return _import_table(project_id, path, mapping, on_progress)
        found = registry.find(path, format=format)
    except Unreadable as error:
        raise InvalidInput(str(error), field="path") from None
    imported: list[Imported] = []
    refused: list[Refused] = []
    for importer, each in found.readable:
        try:
            for produced in importer.read(each):
                imported.append(import_produced(project_id, produced, on_progress=on_progress))
        except (Unreadable, InvalidInput) as error:
            if len(found.readable) == 1:
                raise InvalidInput(str(error), field="path") from None
            refused.append(Refused(path=str(each), reason=str(error)))
    return Report(imported=imported, refused=refused, unknown=[str(each) for each in found.unknown])


def _import_table(project_id: UUID, path: Path, mapping: Path, on_progress: Progress | None) -> Report:
    columns = generic.mapping_from(reading.document(mapping), where=mapping.name)
    produced = generic.read(path, columns)
    imported = [import_produced(project_id, each, on_progress=on_progress) for each in produced]
    return Report(imported=imported, refused=[], unknown=[])


def import_produced(project_id: UUID, produced: Run | Battles, *, on_progress: Progress | None = None) -> Imported:
    if isinstance(produced, Run):
        return import_run(project_id, produced, on_progress=on_progress)
    return import_battles(project_id, produced, on_progress=on_progress)


def import_run(project_id: UUID, run: Run, *, on_progress: Progress | None = None) -> Imported:
    """Store one run, on a benchmark of its own origin: what others measured never joins what a gate reads.

    Raises Unreadable where the file is not readable to its end, InvalidInput for a result that cannot be.
    """
    names = [name for name in (run.model, run.checkpoint) if name]
    if len(names) > 1:
        raise InvalidInput("name the checkpoint or the model, not both", field="model")
    with tenant(project_id):
        benchmark = benchmark_of(run)
        row, _ = EvalRun.objects.get_or_create(
            source_key=source_key(run.source, run.benchmark, run.benchmark_version, *names, run_id=run.run_id),
            defaults={
                "benchmark": benchmark,
                "model": storable_text(run.model)[:300] if run.model else None,
                "checkpoint": run.checkpoint or None,
                "source": _source(run.source),
                "writer_run_id": storable_text(run.run_id or "")[:300],
                "measured_at": run.started_at,
            },
        )
    kept = _Kept(row=row, into=ScoresOf(row, benchmark), source=run.source)
    kept.take(project_id, run.results, on_progress)
    return kept.finish(project_id, run)


def import_battles(project_id: UUID, battles: Battles, *, on_progress: Progress | None = None) -> Imported:
    """Store the comparisons of one file, apart from those made here."""
    with tenant(project_id):
        benchmark = benchmark_of(battles)
        row, _ = ComparisonSet.objects.get_or_create(
            source_key=source_key(battles.source, battles.benchmark, battles.benchmark_version, run_id=battles.run_id),
            defaults={
                "benchmark": benchmark,
                "source": _source(battles.source),
                "writer_run_id": storable_text(battles.run_id or "")[:300],
            },
        )
    kept = _Kept(row=row, into=ComparisonsOf(row, benchmark), source=battles.source)
    kept.take(project_id, battles.battles, on_progress)
    with tenant(project_id):
        done = kept.finish(project_id, battles)
        request_standings(benchmark)
    return done


def source_key(source: Source, *parts: str, run_id: str | None) -> str:
    """What makes it the same run when it comes again: the writer's id, or where there is none the file's digest."""
    identity = ["id", run_id] if run_id else ["sha256", source.sha256]
    return hashlib.sha256(json.dumps([source.format, *parts, *identity]).encode(errors="replace")).hexdigest()


def _batches(items: Iterable[Any]) -> Iterator[list[Any]]:
    """What is held in memory at once, however many items there are and however large they are."""
    batch: list[Any] = []
    size = 0
    for item in items:
        batch.append(item)
        size += characters(item.raw)
        if len(batch) >= BATCH or size > BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


# --- one import ---


@dataclass(kw_only=True)
class _Kept:
    """The row of one import, and how far it is."""

    row: EvalRun | ComparisonSet
    into: "ScoresOf | ComparisonsOf"
    source: Source
    is_unchanged: bool = False
    was_done: bool = False
    counts: Counter[str] = field(default_factory=Counter)

    def take(self, project_id: UUID, items: Iterable[Any], on_progress: Progress | None) -> None:
        self.was_done = self.row.state == RunState.DONE
        sha256 = self.row.source.get("sha256")
        if self.was_done and sha256 is not None and sha256 == self.source.sha256:
            self.is_unchanged = True
            return
        with self._undone_on_failure(project_id):
            place = 0
            for batch in _batches(items):
                with tenant(project_id):
                    self.counts.update(self.into.store(batch, first=place))
                place += len(batch)
                if on_progress is not None:
                    on_progress(place)

    def finish(self, project_id: UUID, produced: Run | Battles) -> Imported:
        if not self.is_unchanged:
            with tenant(project_id):
                self._finish(produced)
        is_same = self.is_unchanged or (self.was_done and not self.counts["new"])
        is_run = isinstance(self.row, EvalRun)
        return Imported(
            kind="run" if is_run else "comparisons",
            id=self.row.id,
            benchmark=str(self.into.benchmark),
            name=(self.row.model or self.row.checkpoint) if isinstance(self.row, EvalRun) else None,
            outcome="unchanged" if is_same else "extended" if self.was_done else "imported",
            num_new=self.counts["new"],
            num_known=self.into.count(project_id) if self.is_unchanged else self.counts["known"],
            num_conflicts=self.counts["conflicts"],
        )

    def _finish(self, produced: Run | Battles) -> None:
        row = self.row
        row.claims = storable(msgspec.to_builtins(produced.claims))
        row.notes = storable(msgspec.to_builtins([*produced.notes, *self._own_notes()][:MAX_NOTES]))
        row.source = _source(self.source)
        if isinstance(row, EvalRun) and isinstance(produced, Run):
            row.scorer = self._scorer_of(row, produced)
            row.settings, _ = fitted(produced.settings)
            row.raw, _ = fitted(produced.raw)
            row.measured_at = produced.started_at
        row.state, row.finished_at, row.error = RunState.DONE, timezone.now(), ""
        row.save()

    def _scorer_of(self, row: EvalRun, run: Run) -> str:
        """The one that stands for the run: the first that the file makes a claim of, else the first in it."""
        there = list(Score.objects.filter(run=row).order_by("scorer").values_list("scorer", flat=True).distinct())
        claimed = [claim.scorer for claim in run.claims if claim.scorer in there or not there]
        first = Score.objects.filter(run=row).order_by("id").values_list("scorer", flat=True).first()
        return (claimed[0] if claimed else first or "")[:MAX_SCORER]

    def _own_notes(self) -> Iterator[Note]:
        if cut := self.counts["cut"]:
            yield Note(kind="missing", text=f"{cut:,} records exceed 1 MiB: their largest fields stay in the file")
        if conflicts := self.counts["conflicts"]:
            yield Note(
                kind="odd", text=f"{conflicts:,} results differ from those that an earlier import kept, which stay"
            )
        if prompts := self.counts["prompts"]:
            yield Note(
                kind="odd",
                text=f"{prompts:,} problems have another prompt than an earlier run has for the same id",
            )

    @contextmanager
    def _undone_on_failure(self, project_id: UUID) -> Iterator[None]:
        table = type(self.row)
        with tenant(project_id):
            table.objects.filter(pk=self.row.pk).update(state=RunState.RUNNING)
            before = self.into.newest()
        try:
            yield
        except (Unreadable, InvalidInput):
            with tenant(project_id):
                if self.was_done:
                    self.into.forget(since=before)
                    table.objects.filter(pk=self.row.pk).update(state=RunState.DONE)
                else:
                    self.into.forget(since=(0, before[1]))
                    table.objects.filter(pk=self.row.pk).delete()
                self.into.forget_benchmark()
            raise


def _source(source: Source) -> dict[str, Any]:
    return storable(msgspec.to_builtins(source))
