"""The results file of the lm-evaluation-harness 0.4 and the samples beside it."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from evals.exporters.exported import Exported, chat_text, encode, line, safe_name
from evals.importers.record import Result

NO_FILTER = "none"


def files(run: Exported) -> Iterator[tuple[str, Iterator[bytes]]]:
    """`results_<time>.json` and `samples_<task>_<time>.jsonl`, of one time, which is how the harness pairs them."""
    stamp = (run.began_at or run.exported_at).strftime("%Y-%m-%dT%H-%M-%S.%f")
    yield f"results_{stamp}.json", iter([encode(document(run))])
    if run.measured:
        yield f"samples_{safe_name(run.benchmark)}_{stamp}.jsonl", (line(sample) for sample in samples(run))


def document(run: Exported) -> dict[str, Any]:
    task = safe_name(run.benchmark)
    row: dict[str, Any] = {"alias": task}
    n = max((one.num_problems for one in run.measured), default=None)
    better: dict[str, bool] = {}
    for scorer, mean, stderr in _values(run):
        metric, filtered = _split(scorer)
        row[f"{metric},{filtered}"] = mean
        row[f"{metric}_stderr,{filtered}"] = "N/A" if stderr is None else stderr
        claim = run.claim_of(scorer)
        better[metric] = claim is None or claim.higher_is_better is not False
    found: dict[str, Any] = {
        "results": {task: row},
        "group_subtasks": {task: []},
        "configs": {task: {"task": task, "metadata": {"version": run.benchmark_version}}},
        "versions": {task: run.benchmark_version},
        "n-shot": {task: None},
        "higher_is_better": {task: better},
        "config": {"model": run.model, "model_args": {"model": run.model}, "settings": dict(run.settings)},
        "git_hash": None,
        "model_name": run.model,
        "model_name_sanitized": safe_name(run.model),
        "exported_by": "strop",
        "measured_by": f"{run.writer} {run.writer_version or ''}".strip(),
    }
    if run.began_at is not None:
        found["date"] = run.began_at.timestamp()
    if n is not None:
        found["n-samples"] = {task: {"original": n, "effective": n}}
    return found


def _values(run: Exported) -> list[tuple[str, float, float | None]]:
    measured = [(one.scorer, one.mean, one.stderr) for one in run.measured if one.mean is not None]
    return measured or [(one.scorer, one.value, one.stderr) for one in run.claims if one.value is not None]


def _split(scorer: str) -> tuple[str, str]:
    metric, comma, filtered = scorer.rpartition(",")
    return (metric, filtered) if comma else (scorer, NO_FILTER)


def samples(run: Exported) -> Iterator[dict[str, Any]]:
    """One line for each answer and filter; a metric without a value is null."""
    for (problem, _repeat), answers in groupby(run.results, key=lambda result: (result.problem, result.repeat)):
        by_filter: dict[str, list[Result]] = {}
        for result in answers:
            by_filter.setdefault(_split(result.scorer)[1], []).append(result)
        for filtered, results in by_filter.items():
            yield _sample(problem, filtered, results)


def _sample(problem: str, filtered: str, results: list[Result]) -> dict[str, Any]:
    first = results[0]
    return {
        "doc_id": int(problem) if problem.isascii() and problem.isdigit() and len(problem) < 16 else problem,
        "doc": dict(first.slices),
        "target": first.reference or "",
        "arguments": {"gen_args_0": {"arg_0": chat_text(first), "arg_1": {}}},
        "resps": [[first.output]],
        "filtered_resps": [first.output],
        "filter": filtered,
        "metrics": [_split(result.scorer)[0] for result in results],
        **{_split(result.scorer)[0]: result.score for result in results},
    }
