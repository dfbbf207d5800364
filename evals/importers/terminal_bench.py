"""Terminal-Bench: the results of a run (`results.json`), with its `run_metadata.json` where it lies beside.

A trial without a verdict (`is_resolved` null: the parser failed, the tests took too long, the agent crashed) is masked.
Terminal-Bench counts it as unresolved; that share is among the claims, is what the results give when each is counted,
and a note names both. A trial that ran out of time may be resolved all the same. No tokens means unknown, not none.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from evals.importers import reading, rows
from evals.importers.errors import Unreadable
from evals.importers.fields import count, elapsed_ms, identity, instant, is_naive, number, percent, rate, text
from evals.importers.reading import mapping
from evals.importers.record import Claim, Note, Result, Run, Source, Status, Usage

FORMAT = "terminal_bench"
BENCHMARK = "terminal-bench"
SCORER = "resolved"
AGENT_FAILED = ("unknown_agent_error", "agent_installation_failed")
SETTINGS = (
    "run_id",
    "agent_name",
    "model_name",
    "agent_kwargs",
    "n_attempts",
    "n_concurrent_trials",
    "dataset_size",
    "commit_hash",
)


def recognises(path: Path) -> bool:
    if path.is_dir():
        results = rows.file_in(path, "results.json")
        return results is not None and recognises(results)
    start = reading.head(path)
    return b'"is_resolved"' in start and b'"trial_name"' in start and b'"results"' in start


def read(path: Path) -> Iterator[Run]:
    """One run for a file; for a folder one for each of its runs, and the trials' own records are not counted again."""
    files = results_under(path) if path.is_dir() else [path]
    if not files:
        raise Unreadable("no results.json of a Terminal-Bench run in this folder", where=path.name)
    for each in files:
        yield run_of(each)


def results_under(folder: Path) -> list[Path]:
    """results.json of the folder, or else of each folder in it."""
    here = rows.file_in(folder, "results.json")
    found = [here] if here else [rows.file_in(each, "results.json") for each in reading.folders_in(folder)]
    return [each for each in found if each and recognises(each)]


def run_of(path: Path) -> Run:
    summary = reading.outline(path, without=[("results",)])
    if not isinstance(summary, dict):
        raise Unreadable("the results of a run are one JSON object", where=path.name)
    metadata, names = metadata_beside(path)
    seen = Seen.over(path)
    if not seen.num_trials and not {"accuracy", "n_resolved"} & summary.keys():
        raise Unreadable("no results of a run: it has results with is_resolved, and accuracy", where=path.name)
    return Run(
        benchmark=text(metadata.get("dataset_name")) or BENCHMARK,
        benchmark_version=text(metadata.get("dataset_version")),
        source=Source(format=FORMAT, sha256=reading.digest(path)),
        model=measured(metadata),
        run_id=text(summary.get("id")) or None,
        started_at=instant(metadata.get("start_time")) or seen.started_at,
        claims=claims_of(summary, n=seen.num_trials),
        notes=[*names, *seen.notes(summary)],
        raw={"metadata": metadata, "summary": summary},
        settings={key: metadata[key] for key in SETTINGS if metadata.get(key) is not None},
        results=results_of(path),
    )


def metadata_beside(path: Path) -> tuple[dict[str, Any], list[Note]]:
    """run_metadata.json next to the results, and what it leaves open."""
    beside = rows.file_in(path.parent, path.name.removesuffix("results.json") + "run_metadata.json")
    if not beside or beside == path:
        return {}, [
            Note(kind="missing", text="no run_metadata.json lies beside: agent, model and data set are not named")
        ]
    metadata = mapping(reading.document(beside))
    notes = []
    if not metadata.get("model_name"):
        notes.append(Note(kind="missing", text="run_metadata.json names no model, only the agent"))
    if is_naive(metadata.get("start_time")):
        notes.append(Note(kind="assumed", text="start_time has no zone: taken as UTC"))
    return metadata, notes


def measured(metadata: dict[str, Any]) -> str | None:
    """What was measured is an agent with a model."""
    return " / ".join(each for key in ("agent_name", "model_name") if (each := text(metadata.get(key)))) or None


def claims_of(summary: dict[str, Any], *, n: int) -> list[Claim]:
    claims = []
    if (accuracy := number(summary.get("accuracy"))) is not None:
        claims.append(Claim(
            metric="accuracy", scorer=SCORER, value=accuracy, n=n, higher_is_better=True,
            where="all trials, as Terminal-Bench counts",
        ))  # fmt: skip
    for k, value in mapping(summary.get("pass_at_k")).items():
        claims.append(Claim(metric=f"pass@{k}", scorer=SCORER, value=number(value), higher_is_better=True))
    return claims


@dataclass
class Seen:
    """What a first pass over the trials finds."""

    num_trials: int = 0
    num_resolved: int = 0
    num_late_but_resolved: int = 0
    num_with_tokens: int = 0
    num_naive: int = 0
    without_verdict: Counter[str] = field(default_factory=Counter)  # by failure mode
    started_at: datetime | None = None

    @classmethod
    def over(cls, path: Path) -> "Seen":
        seen = cls()
        for trial in trials(path):
            verdict, mode = trial.get("is_resolved"), text(trial.get("failure_mode"))
            seen.num_trials += 1
            seen.num_resolved += verdict is True
            seen.num_late_but_resolved += verdict is True and mode == "agent_timeout"
            seen.num_with_tokens += usage_of(trial) is not None
            seen.num_naive += is_naive(trial.get("trial_started_at"))
            if not isinstance(verdict, bool):
                seen.without_verdict[mode or "no failure mode"] += 1
            started = instant(trial.get("trial_started_at"))
            seen.started_at = min(filter(None, (seen.started_at, started)), default=None)
        return seen

    def notes(self, summary: dict[str, Any]) -> list[Note]:
        notes = []
        if not self.num_trials:
            return [Note(kind="missing", text="no data: the file has no trials")]
        if num_without := self.without_verdict.total():
            modes = ", ".join(f"{number_of} {mode}" for mode, number_of in self.without_verdict.most_common())
            with_verdict = self.num_trials - num_without
            among = f", of those with a verdict {rate(self.num_resolved, with_verdict)}" if with_verdict else ""
            notes.append(Note(kind="missing", text=(
                f"{percent(num_without, self.num_trials)} of trials have no verdict ({num_without} of "
                f"{self.num_trials}: {modes}); Terminal-Bench counts them as unresolved, "
                f"{rate(self.num_resolved, self.num_trials)}{among}"
            )))  # fmt: skip
        if self.num_late_but_resolved:
            notes.append(
                Note(
                    kind="odd",
                    text=f"trials that ran out of time and are resolved all the same: {self.num_late_but_resolved}",
                )
            )
        if not self.num_with_tokens:
            notes.append(Note(kind="missing", text="no trial has tokens (0 or null in the file): unknown, not free"))
        else:
            notes.append(Note(kind="assumed", text="tokens read from a cache are not told apart from other input"))
        if self.num_naive:
            notes.append(Note(kind="assumed", text=f"trials with times without a zone, taken as UTC: {self.num_naive}"))
        stated = count(summary.get("n_resolved"))
        if stated is not None and stated != self.num_resolved:
            notes.append(Note(kind="odd", text=f"n_resolved is {stated}, resolved trials are {self.num_resolved}"))
        return notes


def results_of(path: Path) -> Iterator[Result]:
    attempts: Counter[str] = Counter()
    for trial in trials(path):
        problem = identity(trial.get("task_id"))
        yield result_of(trial, problem=problem, repeat=attempts[problem])
        attempts[problem] += 1


def trials(path: Path) -> Iterator[dict[str, Any]]:
    """Each trial once, though some files hold one twice."""
    ids: set[str] = set()
    for place, trial in enumerate(reading.elements_at(path, "results"), start=1):
        if not isinstance(trial, dict) or not text(trial.get("task_id")):
            raise Unreadable("a trial is an object with a task_id", where=f"{path.name}, trial {place}")
        known = text(trial.get("id"))
        if known and known in ids:
            continue
        ids.add(known)
        yield trial


def result_of(trial: dict[str, Any], *, problem: str, repeat: int) -> Result:
    verdict, mode = trial.get("is_resolved"), text(trial.get("failure_mode"))
    status: Status = "scored" if isinstance(verdict, bool) else "error" if mode in AGENT_FAILED else "infra"
    return Result(
        problem=problem,
        scorer=SCORER,
        status=status,
        repeat=repeat,
        score=float(verdict) if isinstance(verdict, bool) else None,
        explanation=mode if mode != "unset" else "",
        prompt=text(trial.get("instruction")) or None,
        slices={"verdict": "given" if status == "scored" else "none"},
        usage=usage_of(trial),
        latency_ms=elapsed_ms(trial.get("agent_started_at"), trial.get("agent_ended_at")),
        raw=trial,
    )


def usage_of(trial: dict[str, Any]) -> Usage | None:
    """0 tokens is what most agents write when they do not count."""
    taken, given = count(trial.get("total_input_tokens")) or None, count(trial.get("total_output_tokens")) or None
    return Usage(input=taken, output=given) if taken or given else None
