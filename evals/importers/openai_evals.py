"""OpenAI evals: the log of one run, a JSONL of a spec, events in no order across threads, and a final report.

`match` and `metrics` events are verdicts; `sampling` lends them prompt and output; a sample with an `error` and no
verdict is an error, one with neither is unscored. A model's grade that could not be parsed ("__invalid__") is unscored,
whatever number stands beside it. Without a final report the run died: what is there is kept and said to be a part.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from evals.importers import reading, rows
from evals.importers.errors import Unreadable
from evals.importers.fields import identity, instant, is_naive, number, rate, text, unit
from evals.importers.reading import mapping, sequence
from evals.importers.record import Claim, Note, Result, Run, Source

FORMAT = "openai_evals"
VERDICTS = ("match", "metrics")
INVALID = "__invalid__"
STDERR = ("bootstrap_std", "boostrap_std")  # the writer's own spelling
MAX_WAITING = 10_000  # samples whose prompt and output are held until their verdict comes


def recognises(path: Path) -> bool:
    start = reading.head(path)
    return start.lstrip().startswith(b'{"spec"') or (b'"event_id"' in start and b'"sample_id"' in start)


def read(path: Path) -> Iterator[Run]:
    log = Log.of(path)
    names = [text(each) for each in sequence(log.spec.get("completion_fns"))]
    run = Run(
        benchmark=text(log.spec.get("base_eval")) or text(log.spec.get("eval_name")) or FORMAT,
        benchmark_version=text(log.spec.get("eval_name")).removeprefix(text(log.spec.get("base_eval")) + "."),
        source=Source(format=FORMAT, sha256=reading.digest(path)),
        model=", ".join(names) or None,
        run_id=text(log.spec.get("run_id")) or None,
        started_at=instant(log.spec.get("created_at")),
        claims=log.claims(),
        notes=log.notes(),
        settings=mapping(log.spec.get("run_config")),
        raw={"spec": log.spec, "final_report": log.report},
        results=(),
    )
    run.results = results_of(path, run.notes)
    yield run


def lines(path: Path) -> Iterator[dict[str, Any]]:
    for where, line in rows.records(path):
        if not {"spec", "final_report", "type"} & line.keys():
            raise Unreadable("a line is a spec, an event with a type, or the final report", where=where)
        yield line


@dataclass
class Log:
    """What a first pass finds: the spec, the final report, and how many events of each type there are."""

    spec: dict[str, Any] = field(default_factory=dict)
    report: dict[str, Any] | None = None
    types: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, path: Path) -> "Log":
        log = cls()
        for line in lines(path):
            if "spec" in line:
                log.spec = mapping(line["spec"])
            elif "final_report" in line:
                log.report = mapping(line["final_report"])
            else:
                log.types[text(line["type"])] += 1
        return log

    def claims(self) -> list[Claim]:
        stated = {
            key: value for key, value in (self.report or {}).items() if number(value) is not None and key not in STDERR
        }
        stderr = next((number(self.report[key]) for key in STDERR if self.report and key in self.report), None)
        return [
            Claim(
                metric=key, scorer="match" if key == "accuracy" else key, value=number(value),
                stderr=stderr if key == "accuracy" else None,
            )
            for key, value in stated.items()
        ]  # fmt: skip

    def notes(self) -> list[Note]:
        notes = []
        if not self.spec:
            notes.append(Note(kind="missing", text="no spec: benchmark, model and settings are not named"))
        if self.report is None:
            notes.append(Note(kind="missing", text="no final report: the run died, what is here may be a part of it"))
        if is_naive(self.spec.get("created_at")):
            notes.append(Note(kind="assumed", text="the spec's time has no zone: taken as UTC"))
        others = {
            kind: number_of for kind, number_of in self.types.items() if kind not in (*VERDICTS, "sampling", "error")
        }
        if others:
            told = ", ".join(f"{number_of} {kind}" for kind, number_of in others.items())
            notes.append(Note(kind="odd", text=f"events that are no verdict and are left out: {told}"))
        return notes


@dataclass
class Sample:
    sampling: dict[str, Any] | None = None  # until its verdict comes
    error: dict[str, Any] | None = None
    is_judged: bool = False


def results_of(path: Path, notes: list[Note]) -> Iterator[Result]:
    samples: dict[str, Sample] = {}
    waiting: dict[str, None] = {}  # samples whose sampling event is held, oldest first
    repeats: Counter[tuple[str, str]] = Counter()
    for line in lines(path):
        kind = text(line.get("type"))
        if kind not in (*VERDICTS, "sampling", "error"):
            continue
        name = text(line.get("sample_id"))
        if not name:
            raise Unreadable(f"a {kind} event names no sample_id", where=path.name)
        sample = samples.setdefault(name, Sample())
        if kind == "error":
            sample.error = line
        elif kind in VERDICTS:
            for result in verdicts_of(line, sample.sampling or {}):
                key = (result.problem, result.scorer)
                yield msgspec.structs.replace(result, repeat=repeats[key])
                repeats[key] += 1
            sample.sampling, sample.is_judged = None, True
            waiting.pop(name, None)
        elif not sample.is_judged:
            sample.sampling = line
            waiting[name] = None
            if len(waiting) > MAX_WAITING:
                oldest = next(iter(waiting))
                del waiting[oldest]
                samples[oldest].sampling = None
    unjudged = {name: sample for name, sample in samples.items() if not sample.is_judged}
    scorers = dict.fromkeys(scorer for _, scorer in repeats) or {"match": None}
    for name, sample in unjudged.items():
        yield from (without_verdict(name, sample, scorer) for scorer in scorers)
    notes += notes_on(
        num_judged=len(samples) - len(unjudged),
        num_errors=sum(each.error is not None for each in unjudged.values()),
        total=len(samples),
    )


def notes_on(*, num_judged: int, num_errors: int, total: int) -> Iterator[Note]:
    if not total:
        yield Note(kind="missing", text="no data: the log has no sample")
    if num_errors:
        yield Note(
            kind="missing",
            text=f"{rate(num_errors, total)} samples ended in an error: the final report is about the others",
        )
    if without := total - num_judged - num_errors:
        yield Note(kind="missing", text=f"{rate(without, total)} samples have no verdict")


def verdicts_of(line: dict[str, Any], sampling: dict[str, Any]) -> Iterator[Result]:
    data, kind = mapping(line.get("data")), text(line.get("type"))
    common: dict[str, Any] = {
        "problem": identity(line.get("sample_id")),
        **question_in(sampling),
        "output": output_of(data, sampling),
        "raw": {"event": line, "sampling": sampling},
    }
    if kind == "match":
        correct = data.get("correct")
        yield Result(
            scorer="match", status="scored" if isinstance(correct, bool) else "unscored",
            score=float(correct) if isinstance(correct, bool) else None,
            raw_score=None if isinstance(correct, bool) else correct,
            reference=text(data.get("expected")) or None, **common,
        )  # fmt: skip
        return
    is_invalid = INVALID in data.values()
    values = {key: value for key, value in data.items() if isinstance(value, bool) or number(value) is not None}
    for name, value in (values or {kind: None}).items():
        score = None if is_invalid else unit(value)
        yield Result(
            scorer=identity(name) or kind, status="unscored" if score is None else "scored", score=score,
            raw_score=value if score is None else None,
            explanation="the grade could not be parsed" if is_invalid else text(data.get("choice")), **common,
        )  # fmt: skip


def without_verdict(name: str, sample: Sample, scorer: str) -> Result:
    line = sample.error or sample.sampling or {}
    return Result(
        problem=identity(name), scorer=scorer, status="error" if sample.error else "unscored",
        explanation=text(mapping(line.get("data")).get("message")) if sample.error else "the log has no verdict",
        **question_in(sample.sampling or {}),
        output=output_of({}, sample.sampling or {}), raw={"event": line, "sampling": sample.sampling or {}},
    )  # fmt: skip


def question_in(sampling: dict[str, Any]) -> dict[str, Any]:
    """The prompt of a sampling event: a chat as messages, anything else as text."""
    prompt = mapping(sampling.get("data")).get("prompt")
    if isinstance(prompt, list) and prompt and all(isinstance(each, dict) for each in prompt):
        return {"messages": prompt}
    return {"prompt": text(prompt) or None}


def output_of(data: dict[str, Any], sampling: dict[str, Any]) -> str:
    """What the model said: of the sampling event, else as the verdict repeats it."""
    sampled = mapping(sampling.get("data")).get("sampled")
    first = next(iter(sequence(sampled)), sampled)
    return text(first if first is not None else data.get("sampled", data.get("picked")))
