"""lm-evaluation-harness: `results_<time>.json` with the `samples_<task>_<time>.jsonl` beside it, versions 0.3 and 0.4.

Every task is a run, and so is every group, which has claims but no results of its own. A sample has one line for each
filter and one value for each metric; the scorer's name is `metric,filter`, as the results have it. Metrics without a
scale of 0 to 1 (perplexities, BLEU, those that pass lists through) are unscored and keep their value beside it.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evals.importers import reading
from evals.importers.errors import Unreadable
from evals.importers.fields import identity, listed, text
from evals.importers.reading import count_of, mapping, sequence, time_of
from evals.importers.record import Claim, Note, Result, Run, Source

FORMAT = "lm_eval"
ABOUT = {"alias", "name", "sample_len", "sample_count", "samples", " "}  # of a task's results; the rest are metrics
MODEL_ARGS = ("peft", "delta", "pretrained", "model", "path", "engine")  # in the order the harness looks for a name
UNSCALED = {
    "perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte", "bleu", "chrf", "ter", "loglikelihood",
}  # fmt: skip
COMMON = {
    "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter",
    "doc_hash", "prompt_hash", "target_hash",
}  # fmt: skip
RANDOM_NAME = re.compile(r"^[A-Za-z0-9]{8}$")  # what the harness invents where the arguments name no model
TIME = re.compile(r"(\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}(?:\.\d+)?)")
SAMPLES = re.compile(r"^(?:.*[^a-zA-Z])?samples_(?P<task>.+)_(?P<time>\d{4}-\d{2}-\d{2}T[\d.-]+)\.jsonl$")
NO_FILTER = "none"

Part = tuple[float, float, int]  # mean, SE and n of one task


def recognises(path: Path) -> bool:
    if path.is_dir():
        return bool(_results_in(path))
    if path.suffix == ".jsonl":
        start = reading.head(path)
        return b'"doc_id"' in start and b'"resps"' in start
    return path.suffix == ".json" and _is_results(path)


def read(path: Path) -> Iterator[Run]:
    """The runs of a results file, of all that lie in a folder, or of a file of samples alone."""
    if path.is_dir():
        found = _results_in(path)
        if not found:
            raise Unreadable("no results_<time>.json lies here", where=path.name)
        for each in found:
            yield from _runs(each)
    elif path.suffix == ".jsonl":
        yield _run_of_samples(path)
    else:
        yield from _runs(path)


def _is_results(path: Path) -> bool:
    """By its name, or by what only this harness writes; `results` may be long, so both ends are looked at."""
    start = reading.head(path)
    if not start.lstrip().startswith(b"{") or b'"results"' not in start:
        return False
    named = path.name.startswith("results_") and b'"evalId"' not in start
    return named or any(
        mark in start + _tail(path) for mark in (b'"lm_eval_version"', b'"n-shot"', b'"bootstrap_iters"')
    )


def _tail(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 16_384))
            return file.read()
    except OSError:
        return b""


def _results_in(folder: Path) -> list[Path]:
    files = reading.files_under(folder, depth=0)
    return [file for file in files if file.suffix == ".json" and "results" in file.name and _is_results(file)]


def _runs(path: Path) -> Iterator[Run]:
    not_finite: Counter[str] = Counter()
    data = reading.document(path, not_finite=not_finite)
    results = mapping(mapping(data).get("results"))
    if not results:
        raise Unreadable("there is no `results`; give the harness's results_<time>.json", where=path.name)
    groups = _groups(data, results)
    samples = _samples_beside(path)
    for name, row in results.items():
        yield _run(path, data, name, mapping(row), groups.get(name), samples.get(name), not_finite)


def _groups(data: Mapping[str, Any], results: Mapping[str, Any]) -> dict[str, list[str]]:
    """Group -> the tasks and groups directly in it. A task is listed too, with nothing in it."""
    found = {
        name: [text(each) for each in sequence(tasks)] for name, tasks in mapping(data.get("group_subtasks")).items()
    }
    return {name: tasks for name, tasks in found.items() if tasks and name in results}


def _samples_beside(path: Path) -> dict[str, Path]:
    """Task -> its samples of the same time. Without a time in the name, those of the only time there is."""
    stamp = _stamp(path.name)
    found: dict[str, Path] = {}
    for file in reading.files_under(path.parent, depth=0):
        match = SAMPLES.match(file.name)
        if match and (stamp is None or match["time"] == stamp):
            found[match["task"]] = file
    return found


def _run(
    path: Path,
    data: Mapping[str, Any],
    task: str,
    row: Mapping[str, Any],
    subtasks: list[str] | None,
    samples: Path | None,
    not_finite: "Counter[str]",
) -> Run:
    config, settings = mapping(mapping(data.get("configs")).get(task)), mapping(data.get("config"))
    notes: list[Note] = []
    model = _model(data, notes)
    run = Run(
        benchmark=task,
        benchmark_version=text(mapping(data.get("versions")).get(task)),
        source=Source(
            format=FORMAT,
            writer_version=text(data.get("lm_eval_version")) or None,
            sha256=reading.digest(path, *([samples] if samples else [])),
        ),
        results=(),
        model=model,
        run_id=_run_id(data),
        started_at=_measured_at(data, path, notes),
        notes=notes,
        settings={"config": settings, "task": config, "num_fewshot": mapping(data.get("n-shot")).get(task)},
        raw={name: value for name, value in data.items() if name not in ("results", "groups", "configs", "config")}
        | {"results": dict(row)},
    )
    effective = count_of(mapping(mapping(data.get("n-samples")).get(task)).get("effective")) or count_of(
        row.get("sample_len")
    )
    run.claims = _claims(row, mapping(mapping(data.get("higher_is_better")).get(task)), effective)
    _note_absent_errors(row, notes)
    if not_finite:
        notes.append(
            Note(kind="odd", text=f"the file has {_told(not_finite)} where JSON has numbers; they count as no value")
        )
    if subtasks:
        notes.extend(_notes_on_group(data, task, row, subtasks))
    elif samples is None:
        notes.append(Note(kind="missing", text=f"no samples_{task}_….jsonl lies beside: numbers without the answers"))
    else:
        run.results = _results(samples, notes, expected=effective)
    return run


def _run_of_samples(path: Path) -> Run:
    match = SAMPLES.match(path.name)
    notes = [Note(kind="missing", text="no results_….json: model, settings and version are not known")]
    run = Run(
        benchmark=match["task"] if match else path.stem,
        source=Source(format=FORMAT, sha256=reading.digest(path)),
        results=(),
        started_at=_time_in_name(path.name, notes),
        notes=notes,
    )
    run.results = _results(path, notes, expected=None)
    return run


def _run_id(data: Mapping[str, Any]) -> str | None:
    """The time to the microsecond at which the harness began; it writes no other id."""
    began = _number(data.get("date"))
    return None if began is None else f"{began:.6f}"


def _model(data: Mapping[str, Any], notes: list[Note]) -> str | None:
    config = mapping(data.get("config"))
    arguments = config.get("model_args")
    if isinstance(arguments, str):
        arguments = dict(part.split("=", 1) for part in arguments.split(",") if "=" in part)
    for name in MODEL_ARGS:
        if named := text(mapping(arguments).get(name)).strip():
            return named
    stated, kind = text(data.get("model_name")), text(config.get("model"))
    if not stated or (RANDOM_NAME.match(stated) and kind and kind != stated):
        if stated:
            notes.append(
                Note(
                    kind="assumed", text=f"the model is called {kind}: its arguments name none, and {stated} is random"
                )
            )
        return kind or None
    return stated


def _measured_at(data: Mapping[str, Any], path: Path, notes: list[Note]) -> datetime | None:
    """`date`. Not start_time and end_time: some versions write them from a clock that starts with the machine."""
    began, _ = time_of(data.get("date"))
    if began is not None and began.year < 2000:
        notes.append(Note(kind="odd", text=f"date is {data.get('date')}, which is no time of day; it is left out"))
        began = None
    return began or _time_in_name(path.name, notes)


def _time_in_name(name: str, notes: list[Note]) -> datetime | None:
    stamp = _stamp(name)
    if stamp is None:
        return None
    day, _, clock = stamp.partition("T")
    try:
        found = datetime.fromisoformat(f"{day}T{clock.replace('-', ':')}").replace(tzinfo=UTC)
    except ValueError:
        return None
    notes.append(Note(kind="assumed", text=f"the time {stamp} in the file's name has no zone; it is taken as UTC"))
    return found


def _stamp(name: str) -> str | None:
    match = TIME.search(name)
    return match[1] if match else None


def _claims(row: Mapping[str, Any], higher: Mapping[str, Any], n: int | None) -> list[Claim]:
    """One for each metric and filter. An SE that is "N/A" or [] is absent, not 0."""
    counts = mapping(row.get("sample_count"))
    found = []
    for key, value in row.items():
        metric, _, filtered = key.partition(",")
        if key in ABOUT or metric.endswith("_stderr") or isinstance(value, str | dict | list):
            continue
        error = row.get(f"{metric}_stderr,{filtered}" if filtered else f"{metric}_stderr")
        is_better = higher.get(metric)
        found.append(
            Claim(
                metric=metric,
                scorer=_scorer(metric, filtered or NO_FILTER),
                value=_plain(value),
                stderr=_plain(error),
                n=count_of(counts.get(key)) or n,
                higher_is_better=is_better if isinstance(is_better, bool) else None,
                where=f"filter {filtered}" if filtered not in ("", NO_FILTER) else "",
            )
        )
    return found


def _note_absent_errors(row: Mapping[str, Any], notes: list[Note]) -> None:
    absent = [key for key, value in row.items() if "_stderr" in key and _plain(value) is None]
    if absent:
        stated = ", ".join(sorted({text(row[key]) or "null" for key in absent}))
        notes.append(Note(kind="missing", text=f"no standard error of {', '.join(absent)}: the file has {stated}"))


def _plain(value: Any) -> float | None:
    return float(value) if isinstance(value, bool) else _number(value)


def _number(value: Any) -> float | None:
    """A number that is written as one."""
    return None if isinstance(value, str) else reading.number_of(value)


def _notes_on_group(
    data: Mapping[str, Any], group: str, row: Mapping[str, Any], subtasks: Sequence[str]
) -> Iterator[Note]:
    yield Note(kind="missing", text=f"a group of {', '.join(subtasks)}: its answers are in the runs of its tasks")
    for key, value in row.items():
        metric, _, filtered = key.partition(",")
        error_key = f"{metric}_stderr,{filtered}" if filtered else f"{metric}_stderr"
        stated, mean = _number(row.get(error_key)), _plain(value)
        if key in ABOUT or stated is None or mean is None:
            continue
        right = group_stderr(mean, _parts(data, subtasks, key, error_key))
        if right is not None and not math.isclose(right, stated, rel_tol=1e-3):
            yield Note(
                kind="odd",
                text=f"{group} states a standard error of {stated:.6f} for {key}, that of a mean weighted by size; "
                f"its mean is not weighted, so it is {right:.6f}",
            )


def _parts(data: Mapping[str, Any], subtasks: Sequence[str], key: str, error_key: str) -> list[Part]:
    """Those of all tasks, or none where one of them is not known."""
    found = []
    for task in subtasks:
        row = mapping(mapping(data.get("results")).get(task))
        size = count_of(mapping(mapping(data.get("n-samples")).get(task)).get("effective"))
        mean, error, size = _plain(row.get(key)), _number(row.get(error_key)), size or count_of(row.get("sample_len"))
        if mean is None or error is None or not size:
            return []
        found.append((mean, error, size))
    return found


def group_stderr(mean: float, parts: Sequence[Part]) -> float | None:
    """The SE of an unweighted mean over tasks, sqrt(sum of SE squared) / k. `parts`: (mean, SE, n) of each task.

    None where the mean is weighted by size, whose SE the harness pools rightly, or where it is neither.
    Example: two tasks of n 100 and 400 with SE .02 and .03 give .018028.
    """
    if len(parts) < 2:
        return None
    plain = sum(part[0] for part in parts) / len(parts)
    weighted = sum(part[0] * part[2] for part in parts) / sum(part[2] for part in parts)
    if not math.isclose(mean, plain, rel_tol=1e-6, abs_tol=1e-9) or math.isclose(plain, weighted, rel_tol=1e-6):
        return None
    return math.sqrt(sum(part[1] ** 2 for part in parts)) / len(parts)


def _results(path: Path, notes: list[Note], *, expected: int | None) -> Iterator[Result]:
    """One result for each metric of each line."""
    seen: Counter[tuple[str, str]] = Counter()
    documents: set[str] = set()
    not_finite: Counter[str] = Counter()
    without_metrics = 0
    for line, sample in reading.records(path, not_finite=not_finite):
        if "doc_id" not in sample:
            raise Unreadable(
                "a line has no doc_id; give the harness's samples_<task>_<time>.jsonl", where=f"{path.name}:{line}"
            )
        name, filtered = identity(sample["doc_id"]), text(sample.get("filter")) or NO_FILTER
        seen[name, filtered] += 1
        documents.add(name)
        metrics = _metrics(sample)
        without_metrics += not metrics
        for place, metric in enumerate(metrics):
            yield _result(sample, name, metric, filtered, repeat=seen[name, filtered] - 1, is_first=not place)
    notes.extend(_notes_on_samples(seen, documents, expected, without_metrics, not_finite))


def _metrics(sample: Mapping[str, Any]) -> list[str]:
    """Old files do not list them: then whatever follows the fields that every sample has."""
    listed = [text(each) for each in sequence(sample.get("metrics"))]
    if listed or "metrics" in sample:
        return [metric for metric in listed if metric in sample]
    return [key for key, value in sample.items() if key not in COMMON and not isinstance(value, str | dict)]


def _result(sample: dict[str, Any], name: str, metric: str, filtered: str, *, repeat: int, is_first: bool) -> Result:
    value = sample.get(metric)
    score, why = _score(metric, value)
    return Result(
        problem=name,
        scorer=_scorer(metric, filtered),
        repeat=repeat,
        status="scored" if score is not None else "unscored",
        score=score,
        raw_score=None if score is not None and not isinstance(value, bool) else value,
        explanation=why,
        prompt=_prompt(sample),
        reference=text(sample["target"]) if sample.get("target") is not None else None,
        output=_output(sample, metric),
        raw=sample if is_first else {},
    )


def _score(metric: str, value: Any) -> tuple[float | None, str]:
    """(score, why there is none)."""
    found = _plain(value)
    if value is None:
        return None, "the file has no value here (null or NaN)"
    if found is None:
        return None, f"{metric} passes its parts through; only their aggregate is a number"
    if metric in UNSCALED or not 0 <= found <= 1:
        return None, f"{metric} has no scale of 0 to 1"
    return found, ""


def _scorer(metric: str, filtered: str) -> str:
    return f"{metric},{filtered}"


def _prompt(sample: Mapping[str, Any]) -> str | None:
    """The first argument of the first request; 0.4.0 wrote arguments as lists."""
    arguments = sample.get("arguments")
    first = (
        next(iter(arguments.values()), None) if isinstance(arguments, dict) else next(iter(sequence(arguments)), None)
    )
    asked = first.get("arg_0") if isinstance(first, dict) else next(iter(sequence(first)), None)
    return text(asked) if asked is not None else None


def _output(sample: Mapping[str, Any], metric: str) -> str:
    """What the filter left of the answer; of a multiple choice, the choice that `acc` takes: the likeliest."""
    left = sequence(sample.get("filtered_resps"))
    arguments = sample.get("arguments")
    if isinstance(arguments, dict) and len(left) == len(arguments) > 1:
        likelihoods = [reading.number_of(sequence(each)[0]) if sequence(each) else None for each in left]
        if metric != "acc" or any(each is None for each in likelihoods):
            return ""
        best = max(range(len(left)), key=lambda place: likelihoods[place] or 0.0)
        return text(mapping(list(arguments.values())[best]).get("arg_1")).strip()
    return text(left[0]) if left else ""


def _notes_on_samples(
    seen: "Counter[tuple[str, str]]",
    documents: set[str],
    expected: int | None,
    without: int,
    not_finite: "Counter[str]",
) -> Iterator[Note]:
    repeated = sorted({name for (name, _), times in seen.items() if times > 1})
    if repeated:
        yield Note(kind="odd", text=f"documents that occur more than once, kept as repeats: {listed(repeated)}")
    if expected is not None and expected != len(documents):
        yield Note(kind="missing", text=f"the results are of {expected:,} documents; here: {len(documents):,}")
    if without:
        yield Note(kind="missing", text=f"{without:,} samples have no metric")
    if not_finite:
        yield Note(kind="odd", text=f"the samples have {_told(not_finite)}; they count as no value")


def _told(not_finite: "Counter[str]") -> str:
    return ", ".join(f"{times:,} × {name}" for name, times in sorted(not_finite.items()))
