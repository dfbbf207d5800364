"""HELM: the folder of one run (`run_spec.json`, `per_instance_stats.json` and what lies beside), or a suite of them.

HELM's own aggregates have a count of 1 and no spread, so results come from the statistics of the instances. Splits and
perturbations are never pooled: each is a run of its own. HELM drops statistics that are NaN; where other instances have
one, the instance without it is unscored. What HELM counts beside its metrics (tokens, seconds, reasons to finish) is no
score: tokens and seconds become usage and latency, the rest stays in the raw record.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from evals.importers import reading, rows
from evals.importers.errors import Unreadable
from evals.importers.fields import count, identity, number, rate, text, unit
from evals.importers.reading import mapping, sequence
from evals.importers.record import Claim, Note, Result, Run, Source, Usage

FORMAT = "helm"
FILES = ("run_spec", "scenario", "scenario_state", "stats", "per_instance_stats")
NO_METRIC = (
    "num_", "training_", "inference_", "finish_reason_", "prompt_truncated", "batch_size", "max_prob", "logprob",
    "request_time", "denoised_runtime", "idealized_runtime",
)  # fmt: skip
SETTINGS = (
    "method", "max_train_instances", "max_eval_instances", "num_outputs", "num_trials", "num_train_trials",
    "model_deployment", "temperature", "max_tokens", "stop_sequences",
)  # fmt: skip
MAX_WAITING = 1000  # request states held back because the two files are in different orders


class Part(NamedTuple):
    """What is never pooled with anything else: a split, and a perturbation as HELM describes it ("" is none)."""

    split: str
    perturbation: str

    def __str__(self) -> str:
        return ", ".join(filter(None, self))


@dataclass
class Seen:
    """What a first pass finds in one part."""

    num_instances: int = 0
    metrics: Counter[str] = field(default_factory=Counter)  # how many instances have each


def recognises(path: Path) -> bool:
    return path.is_dir() and is_run(path)


def read(path: Path) -> Iterator[Run]:
    """One run for each split and perturbation; for a suite of folders, of each folder."""
    folders = run_folders(path) if path.is_dir() else []
    if not folders:
        raise Unreadable(
            "give the folder of a HELM run: it has run_spec.json and per_instance_stats.json", where=path.name
        )
    for folder in folders:
        yield from runs_of(folder)


def run_folders(path: Path) -> list[Path]:
    """The folder itself, or those in it where it is a suite."""
    return [path] if is_run(path) else [each for each in reading.folders_in(path) if is_run(each)]


def is_run(folder: Path) -> bool:
    return all(rows.file_in(folder, name) for name in ("run_spec.json", "per_instance_stats.json"))


def runs_of(folder: Path) -> Iterator[Run]:
    spec = mapping(reading.document(folder / "run_spec.json"))
    adapter = mapping(spec.get("adapter_spec"))
    name = text(spec.get("name")) or folder.name
    files = [path for each in FILES if (path := rows.file_in(folder, f"{each}.json"))]
    source = Source(format=FORMAT, sha256=reading.digest(*files))
    claims = claims_by_part(folder / "stats.json")
    parts = parts_of(folder)
    if not parts:
        raise Unreadable("it has no instance", where=f"{folder.name}/per_instance_stats.json")
    for part, seen in parts.items():
        notes = notes_on(part, parts, has_states=folder / "scenario_state.json" in files)
        yield Run(
            benchmark=f"{without_model(name)} [{part}]",
            source=source,
            model=text(adapter.get("model")) or text(adapter.get("model_deployment")) or None,
            claims=claims.get(part, []),
            notes=notes,
            raw={"run_spec": spec, "scenario": scenario_of(folder)},
            settings={key: adapter[key] for key in SETTINGS if adapter.get(key) is not None},
            results=results_of(folder, part, seen, notes),
        )


def scenario_of(folder: Path) -> dict[str, Any]:
    path = rows.file_in(folder, "scenario.json")
    return mapping(reading.document(path)) if path else {}


def without_model(name: str) -> str:
    """The name of a run, less what is the model's and not the benchmark's."""
    scenario, _, arguments = name.partition(":")
    kept = [each for each in arguments.split(",") if each and not each.startswith(("model=", "model_deployment="))]
    return f"{scenario}:{','.join(kept)}" if kept else scenario


def notes_on(part: Part, parts: dict[Part, Seen], *, has_states: bool) -> list[Note]:
    notes = []
    if others := [f"{other} (n {seen.num_instances})" for other, seen in parts.items() if other != part]:
        notes.append(Note(kind="missing", text=f"not pooled: {'; '.join(others)} are runs of their own"))
    seen = parts[part]
    for metric, num_present in seen.metrics.items():
        if num_present < seen.num_instances:
            lacking = rate(seen.num_instances - num_present, seen.num_instances)
            notes.append(Note(kind="missing", text=f"{lacking} instances have no {metric}: HELM drops what is NaN"))
    if not seen.metrics:
        notes.append(Note(kind="missing", text="no data: no instance has a metric"))
    if not has_states:
        notes.append(Note(kind="missing", text="no scenario_state.json: prompts and outputs are not here"))
    return notes


# --- statistics ---


def instances(folder: Path) -> Iterator[tuple[Part, dict[str, Any]]]:
    path = folder / "per_instance_stats.json"
    for place, entry in enumerate(reading.elements_at(path), start=1):
        if not isinstance(entry, dict) or not text(entry.get("instance_id")):
            raise Unreadable(
                "an instance is an object with instance_id and stats", where=f"{path.name}, instance {place}"
            )
        splits = (text(mapping(mapping(stat).get("name")).get("split")) for stat in sequence(entry.get("stats")))
        yield Part(next(filter(None, splits), ""), named(entry.get("perturbation"))), entry


def named(perturbation: Any) -> str:
    """ "misspelling prob=0.1"; what a statistic over it was computed on is no part of the perturbation."""
    fields = {key: text(value) for key, value in sorted(mapping(perturbation).items()) if key != "computed_on"}
    return " ".join([fields.pop("name", ""), *(f"{key}={value}" for key, value in fields.items())]).strip()


def metric_of(stat: dict[str, Any]) -> str:
    """The metric's name; "" for what is none."""
    name = mapping(stat.get("name"))
    metric = text(name.get("name"))
    if not metric or metric.startswith(NO_METRIC):
        return ""
    return identity(f"{metric} ({text(name['sub_split'])})" if name.get("sub_split") else metric)


def by_metric(entry: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {metric: stat for each in sequence(entry.get("stats")) if (metric := metric_of(stat := mapping(each)))}


def parts_of(folder: Path) -> dict[Part, Seen]:
    parts: dict[Part, Seen] = {}
    rows.runs_of(folder, (part for part, _ in instances(folder)))
    for part, entry in instances(folder):
        seen = parts.setdefault(part, Seen())
        seen.num_instances += 1
        seen.metrics.update(by_metric(entry).keys())
    return parts


def claims_by_part(path: Path) -> dict[Part, list[Claim]]:
    claims: dict[Part, list[Claim]] = {}
    for each in reading.elements_at(path) if rows.file_in(path.parent, path.name) else ():
        stat = mapping(each)
        metric, name = metric_of(stat), mapping(stat.get("name"))
        if metric and count(stat.get("count")):
            part = Part(text(name.get("split")), named(name.get("perturbation")))
            computed_on = text(mapping(name.get("perturbation")).get("computed_on"))
            where = ", ".join(filter(None, (*part, computed_on)))
            claim = Claim(metric=metric, scorer=metric, value=number(stat.get("mean")), where=where)
            claims.setdefault(part, []).append(claim)
    return claims


def bookkept(entry: dict[str, Any], *names: str) -> float | None:
    """The mean of the first of these statistics that the instance has."""
    means = {
        text(mapping(stat.get("name")).get("name")): number(stat.get("mean"))
        for stat in map(mapping, sequence(entry.get("stats")))
        if count(stat.get("count"))
    }
    return next((means[name] for name in names if means.get(name) is not None), None)


# --- results ---


def results_of(folder: Path, part: Part, seen: Seen, notes: list[Note]) -> Iterator[Result]:
    states = States(folder / "scenario_state.json", part)
    repeats: Counter[str] = Counter()
    off_scale: Counter[str] = Counter()
    for of_part, entry in instances(folder):
        if of_part != part:
            continue
        problem = identity(entry.get("instance_id"))
        trial = count(entry.get("train_trial_index")) or 0
        repeat = max(trial, repeats[problem])
        repeats[problem] = repeat + 1
        state = states.take(text(entry.get("instance_id")), trial)
        stats = by_metric(entry)
        raw: dict[str, Any] = {"instance": entry, "request_state": state}
        for metric in seen.metrics:
            result = result_of(metric, stats.get(metric), entry, state, part, problem=problem, repeat=repeat, raw=raw)
            off_scale[metric] += result.raw_score is not None
            yield result
            raw = {"stat": stats.get(metric)}
    notes += [
        Note(kind="odd", text=f"values of {metric} outside [0, 1], kept raw and not scored: {number_of}")
        for metric, number_of in off_scale.items() if number_of
    ]  # fmt: skip
    if states.num_lost:
        notes.append(
            Note(kind="odd", text=f"{states.num_lost} instances are not in scenario_state.json: no prompt, no output")
        )


def result_of(
    metric: str, stat: dict[str, Any] | None, entry: dict[str, Any], state: dict[str, Any], part: Part, **fields: Any
) -> Result:
    mean = number(stat.get("mean")) if stat and count(stat.get("count")) else None
    answer = mapping(state.get("result"))
    failed = answer.get("success") is False
    score = None if failed else unit(mean)
    instance = mapping(state.get("instance"))
    completions = sequence(answer.get("completions"))
    output = text(mapping(completions[0]).get("text")) if completions else ""
    chosen = mapping(state.get("output_mapping")).get(output.strip())
    seconds = bookkept(entry, "inference_runtime")
    return Result(
        scorer=metric,
        status="error" if failed else "unscored" if score is None else "scored",
        score=score,
        raw_score=mean if score is None else None,
        explanation=explanation(mean, failed=failed, error=answer.get("error"), chosen=chosen, output=output),
        prompt=text(mapping(state.get("request")).get("prompt"))
        or text(mapping(instance.get("input")).get("text"))
        or None,
        reference=reference_of(instance),
        output=output,
        slices={key: value for key, value in part._asdict().items() if value},
        usage=usage_of(entry),
        latency_ms=None if seconds is None or seconds < 0 else seconds * 1000,
        **fields,
    )


def explanation(mean: float | None, *, failed: bool, error: Any, chosen: Any, output: str) -> str:
    if failed:
        return text(error) or "the request failed"
    if mean is None:
        return "HELM wrote no number for this instance"
    return f"{output.strip()} stands for {text(chosen)!r}" if chosen is not None else ""


def reference_of(instance: dict[str, Any]) -> str | None:
    """The correct references, one on a line."""
    correct = [
        each for each in map(mapping, sequence(instance.get("references"))) if "correct" in sequence(each.get("tags"))
    ]
    return "\n".join(text(mapping(each.get("output")).get("text")) for each in correct) or None


def usage_of(entry: dict[str, Any]) -> Usage | None:
    taken, given = bookkept(entry, "num_prompt_tokens"), bookkept(entry, "num_output_tokens", "num_completion_tokens")
    return None if taken is None and given is None else Usage(input=count(taken), output=count(given))


class States:
    """The request states of one part, asked for in the order of the statistics, which is nearly always theirs."""

    def __init__(self, path: Path, part: Part) -> None:
        self.num_lost = 0
        self._is_there = rows.file_in(path.parent, path.name) is not None
        self._rest = self._of_part(path, part) if self._is_there else iter(())
        self._waiting: dict[tuple[str, int], dict[str, Any]] = {}

    def take(self, instance_id: str, trial: int) -> dict[str, Any]:
        """The first state of an instance in a trial, of several (one for each reference); {} where there is none."""
        wanted = (instance_id, trial)
        if wanted in self._waiting:
            return self._waiting.pop(wanted)
        for key, state in self._rest:
            if key == wanted:
                return state
            self._waiting.setdefault(key, state)
            if len(self._waiting) > MAX_WAITING:
                self._waiting.pop(next(iter(self._waiting)))
        self.num_lost += self._is_there
        return {}

    @staticmethod
    def _of_part(path: Path, part: Part) -> Iterator[tuple[tuple[str, int], dict[str, Any]]]:
        previous = None
        for state in map(mapping, reading.elements_at(path, "request_states")):
            instance = mapping(state.get("instance"))
            key = (text(instance.get("id")), count(state.get("train_trial_index")) or 0)
            of_part = Part(text(instance.get("split")), named(instance.get("perturbation")))
            if of_part == part and key != previous:
                previous = key
                yield key, state
