"""SWE-bench: run reports (schema 2, its variants, and the lists of version 1), reports of instances, and predictions.

The leaderboard's number is resolved / all instances of the data set; it stands among the claims, and the results give
it when each of them is counted. An empty patch is a 0. An instance whose evaluation ended without a report of its tests
has no verdict (`infra`), one without a prediction has no answer (`error`): neither is a 0; the notes name both shares.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evals.importers import reading, rows
from evals.importers.errors import Unreadable
from evals.importers.fields import count, identity, listed, plural, rate, text
from evals.importers.reading import mapping, sequence
from evals.importers.record import Claim, Note, Result, Run, Source, Status

FORMAT = "swebench"
BENCHMARK = "swe-bench"
SCORER = "resolved"

# What a list of a report says of the instances in it, the telling list first: an id may stand in several.
Outcome = tuple[Status, float | None, str]
OUTCOMES: dict[str, Outcome] = {
    "resolved": ("scored", 1.0, ""),
    "empty_patch": ("scored", 0.0, "the patch is empty"),
    "infra_failure": ("infra", None, "the harness calls this a failure of the infrastructure"),
    "error": ("infra", None, "the evaluation ended without a report of the tests"),
    "failed": ("infra", None, "the evaluation failed"),
    "unresolved": ("scored", 0.0, ""),
    "ambiguous_failure": ("infra", None, "the harness cannot tell the patch's failure from the infrastructure's"),
    "incomplete": ("error", None, "there is no prediction"),
}
OUTCOMES_V1: dict[str, Outcome] = {
    "resolved": ("scored", 1.0, ""),
    "install_fail": ("infra", None, "the environment could not be installed"),
    "reset_failed": ("infra", None, "the repository could not be reset"),
    "no_generation": ("scored", 0.0, "the patch is empty"),
    "no_apply": ("scored", 0.0, "the patch does not apply"),
    "test_errored": ("scored", 0.0, "the tests ended in an error"),
    "test_timeout": ("scored", 0.0, "the tests took too long"),
    "applied": ("scored", 0.0, "not resolved"),
    "with_logs": ("unscored", None, "evaluated, but without a verdict"),
    "generated": ("unscored", None, "predicted, but not evaluated"),
}
NOT_EVALUATED: Outcome = ("unscored", None, "no list of the report says how it went")


def recognises(path: Path) -> bool:
    """Of folders, that of a model's logs: <instance>/report.json lies in it."""
    if path.is_dir():
        return any(is_instance_report(reading.head(report)) for report in reports_in(path))
    start = reading.head(path)
    return is_run_report(start) or is_instance_report(start) or is_predictions(start)


def read(path: Path) -> Iterator[Run]:
    if path.is_dir():
        yield from runs_of_folder(path)
        return
    start = reading.head(path)
    if is_run_report(start):
        yield run_of_report(path)
    elif is_instance_report(start):
        yield run_of_instances([path], source=Source(format=FORMAT, sha256=reading.digest(path)))
    elif is_predictions(start):
        yield from runs_of_predictions(path)
    else:
        raise Unreadable(
            "neither a run report (total_instances, resolved_ids), nor a report of an instance (patch_is_None), nor "
            "predictions (instance_id, model_patch)",
            where=path.name,
        )


def is_run_report(start: bytes) -> bool:
    is_v2 = b'"total_instances"' in start and b'"resolved_' in start
    return is_v2 or (b'"no_generation"' in start and b'"generated"' in start)


def is_instance_report(start: bytes) -> bool:
    return b'"patch_successfully_applied"' in start or b'"patch_is_None"' in start


def is_predictions(start: bytes) -> bool:
    return b'"model_patch"' in start and (b'"instance_id"' in start or b'"model_name_or_path"' in start)


# --- the report of a run ---


def run_of_report(path: Path) -> Run:
    report = reading.document(path)
    if not isinstance(report, dict):
        raise Unreadable("a run report is one JSON object", where=path.name)
    is_v1 = "total_instances" not in report
    outcomes = OUTCOMES_V1 if is_v1 else OUTCOMES
    lists = id_lists(report, suffix="" if is_v1 else "_ids")
    deciding = deciding_lists(lists, outcomes)
    model, run_name = names_in(path.name)
    statuses = [outcomes.get(name, NOT_EVALUATED) for name in deciding.values()]
    total = len(deciding) if is_v1 else count(report.get("total_instances"))
    return Run(
        benchmark=BENCHMARK,
        source=Source(format=FORMAT, sha256=reading.digest(path)),
        model=model,
        results=[
            result_of(each, name, outcome, mapping(report.get("failure_reasons")))
            for (each, name), outcome in zip(deciding.items(), statuses, strict=True)
        ],
        claims=claims_of(report),
        notes=[
            *notes_on_lists(report, lists, deciding, is_v1=is_v1),
            *notes_on_shares(
                [status for status, _, _ in statuses], resolved=len(lists.get("resolved", [])), total=total
            ),
            Note(kind="assumed", text="the names of the model and the run are taken from the file's name"),
        ],
        settings={"run": run_name, "schema_version": report.get("schema_version")},
        raw={key: value for key, value in report.items() if not isinstance(value, list)},
    )


def id_lists(report: dict[str, Any], *, suffix: str) -> dict[str, list[str]]:
    """The ids in each list of a report, by the list's name without its ending; each id once."""
    return {
        key.removesuffix(suffix): list(dict.fromkeys(text(each) for each in value))
        for key, value in report.items()
        if isinstance(value, list) and (key in OUTCOMES_V1 if not suffix else key.endswith(suffix))
    }


def deciding_lists(lists: dict[str, list[str]], outcomes: dict[str, Outcome]) -> dict[str, str]:
    """Each instance and the list that decides about it. An id that was only submitted is none of the data set's."""
    unknown = [name for name in lists if name not in outcomes and name not in ("submitted", "completed")]
    found: dict[str, str] = {}
    for name in [*outcomes, *unknown, "completed"]:
        for each in lists.get(name, []):
            found.setdefault(each, name)
    return found


def result_of(each: str, name: str, outcome: Outcome, reasons: dict[str, Any]) -> Result:
    status, score, why = outcome
    reason = text(reasons.get(each))
    return Result(
        problem=identity(each), scorer=SCORER, status=status, score=score,
        explanation=": ".join(part for part in (why, reason) if part), slices={"outcome": name},
        raw={"instance_id": each, "list": name, **({"failure_reason": reasons[each]} if each in reasons else {})},
    )  # fmt: skip


def claims_of(report: dict[str, Any]) -> list[Claim]:
    resolved = count(report.get("resolved_instances"))
    if resolved is None:
        return []
    wholes = {
        "total_instances": "all instances, as SWE-bench counts",
        "submitted_instances": "submitted",
        "completed_instances": "completed",
    }
    return [
        Claim(metric="resolved", scorer=SCORER, value=resolved / whole, n=whole, higher_is_better=True, where=where)
        for key, where in wholes.items()
        if (whole := count(report.get(key))) and resolved <= whole
    ]


def notes_on_lists(
    report: dict[str, Any], lists: dict[str, list[str]], deciding: dict[str, str], *, is_v1: bool
) -> list[Note]:
    notes = []
    if is_v1:
        notes.append(
            Note(
                kind="missing",
                text="a report of version 1 does not tell the size of the data set: n counts the ids it names",
            )
        )
    elif count(report.get("total_instances")) == 0:
        notes.append(Note(kind="missing", text="no data: total_instances is 0"))
    elif not deciding:
        notes.append(
            Note(kind="missing", text="the report has counts only: no instance is named, so there are no results")
        )
    elif count(report.get("total_instances")) != len(deciding):
        notes.append(
            Note(
                kind="odd",
                text=f"total_instances is {text(report.get('total_instances'))}, the lists name {len(deciding)}",
            )
        )
    for name, ids in lists.items():
        stated = report.get(f"{name}_instances")
        if stated is not None and stated != len(ids):
            notes.append(Note(kind="odd", text=f"{name}_instances is {text(stated)}, {name}_ids has {len(ids)}"))
    for name in ("infra_failure", "error", "failed"):
        if (stated := count(report.get(f"{name}_instances"))) and name not in lists:
            notes.append(Note(kind="missing", text=f"{name}_instances is {stated}, and no list says which"))
    if outside := [each for each in lists.get("submitted", []) if each not in deciding]:
        notes.append(Note(kind="odd", text=f"submitted ids outside the data set: {len(outside)} ({listed(outside)})"))
    containers = report.get("unstopped_instances")
    if isinstance(containers, int) and containers:
        notes.append(Note(kind="odd", text=f"{containers} containers were still running when the report was made"))
    return notes


def notes_on_shares(statuses: list[Status], *, resolved: int, total: int | None) -> list[Note]:
    """What the failures are, and the share of resolved instances with and without them."""
    num_infra, num_missing = statuses.count("infra"), statuses.count("error")
    if not (num_infra or num_missing) or not total:
        return []
    num_scored = statuses.count("scored")
    told = [f"{num_infra} infra failure{plural(num_infra)} (no verdict)"] if num_infra else []
    told += [f"{num_missing} instance{plural(num_missing)} without a prediction"] if num_missing else []
    without = f"; of those with a verdict {rate(resolved, num_scored)}" if num_scored else "; none has a verdict"
    return [
        Note(
            kind="missing",
            text=f"{' and '.join(told)}: SWE-bench counts them as unresolved, {rate(resolved, total)}{without}",
        )
    ]


def names_in(name: str) -> tuple[str | None, str | None]:
    """ "org__model-x.run1.json" -> org/model-x and run1; a name without a run names nothing."""
    model, _, run = name.removesuffix(".json").rpartition(".")
    return (model.replace("__", "/"), run) if model and run else (None, None)


# --- reports of instances: <model>/<instance>/report.json ---


def runs_of_folder(folder: Path) -> Iterator[Run]:
    by_model: dict[Path, list[Path]] = {}
    for report in reports_under(folder):
        by_model.setdefault(report.parent.parent, []).append(report)
    if not by_model:
        raise Unreadable("no <model>/<instance>/report.json under this folder", where=folder.name)
    for of_model, reports in by_model.items():
        run = run_of_instances(reports, source=Source(format=FORMAT, sha256=reading.digest(*reports)))
        run.model, run.settings = of_model.name.replace("__", "/"), {"run": of_model.parent.name}
        run.notes.append(Note(kind="assumed", text="the names of the model and the run are those of the folders"))
        yield run


def run_of_instances(reports: list[Path], *, source: Source) -> Run:
    run = Run(benchmark=BENCHMARK, source=source, results=())
    run.notes = [
        Note(kind="missing", text="instances without a report are not here: the data set may be larger than n")
    ]
    run.results = results_of_instances(reports)
    return run


def results_of_instances(reports: list[Path]) -> Iterator[Result]:
    for path in reports:
        report = reading.document(path)
        if not isinstance(report, dict):
            raise Unreadable("a report of an instance is one JSON object: {id: {...}}", where=path.name)
        for each, value in report.items():
            yield result_of_instance(each, mapping(value))


def result_of_instance(each: str, report: dict[str, Any]) -> Result:
    status: Status
    if report.get("infra_failure") is True:
        status, score, why = "infra", None, text(report.get("infra_failure_reason"))
    elif isinstance(report.get("resolved"), bool):
        status, score, why = "scored", float(report["resolved"]), tests_passed(report)
    else:
        status, score, why = "unscored", None, "the report does not say whether the instance is resolved"
    return Result(
        problem=identity(each), scorer=SCORER, status=status, score=score, explanation=why,
        raw={"instance_id": each, "report": report},
    )  # fmt: skip


def tests_passed(report: dict[str, Any]) -> str:
    """ "FAIL_TO_PASS 1 of 1, PASS_TO_PASS 1 of 1"."""
    told = []
    for kind in ("FAIL_TO_PASS", "PASS_TO_PASS"):
        tests = mapping(mapping(report.get("tests_status")).get(kind))
        passed, failed = len(sequence(tests.get("success"))), len(sequence(tests.get("failure")))
        if passed + failed:
            told.append(f"{kind} {passed} of {passed + failed}")
    return ", ".join(told)


def reports_in(folder: Path) -> list[Path]:
    """report.json of each instance in a model's folder."""
    return [found for each in reading.folders_in(folder) if (found := rows.file_in(each, "report.json"))]


def reports_under(folder: Path) -> list[Path]:
    """Every report.json: <run>/<model>/<instance>/report.json, or a part of that."""
    return [path for path in reading.files_under(folder, depth=3) if path.name == "report.json"]


# --- predictions ---


def runs_of_predictions(path: Path) -> Iterator[Run]:
    """One run for each model; of an instance that comes twice the later prediction counts, as for the harness."""
    source = Source(format=FORMAT, sha256=reading.digest(path))
    last: dict[tuple[str, str], int] = {}
    models: dict[str, dict[str, int]] = {}
    rows.runs_of(path, (text(each.get("model_name_or_path")) for each in predictions(path)))
    for place, each in enumerate(predictions(path)):
        model = text(each.get("model_name_or_path"))
        seen = models.setdefault(model, {"lines": 0, "empty": 0})
        seen["lines"] += 1
        last[model, text(each.get("instance_id"))] = place
    for model in models:
        kept = {place for (of, _), place in last.items() if of == model}
        run = Run(benchmark=BENCHMARK, source=source, model=model or None, results=())
        run.notes.append(
            Note(kind="missing", text="predictions only: there is no verdict until the report of a run is imported")
        )
        if repeated := models[model]["lines"] - len(kept):
            run.notes.append(
                Note(kind="odd", text=f"predictions replaced by a later one for the same instance: {repeated}")
            )
        run.results = results_of_predictions(path, kept, run.notes)
        yield run


def results_of_predictions(path: Path, kept: set[int], notes: list[Note]) -> Iterator[Result]:
    num_empty = 0
    for place, each in enumerate(predictions(path)):
        if place not in kept:
            continue
        patch = text(each.get("model_patch"))
        num_empty += not patch
        yield Result(
            problem=identity(each.get("instance_id")), scorer=SCORER, status="unscored", output=patch, raw=each,
            explanation="not evaluated" if patch else "the patch is empty: SWE-bench will count it as unresolved",
        )  # fmt: skip
    if num_empty:
        notes.append(Note(kind="odd", text=f"{rate(num_empty, len(kept))} patches are empty"))


def predictions(path: Path) -> Iterator[dict[str, Any]]:
    """The predictions of a JSONL file, a JSON list, or one JSON object by instance."""
    for where, each in rows.records_by_id(path, "instance_id"):
        if not text(each.get("instance_id")):
            raise Unreadable("a prediction has an instance_id and a model_patch", where=where)
        yield each
