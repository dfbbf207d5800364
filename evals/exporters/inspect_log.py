"""A log as Inspect reads it: one JSON document, written sample by sample.

Inspect's own mark for unscored is NaN, which is no JSON, and it reads no null there: a scorer without a value is left
out of the sample's scores, and its reason stands in the sample's metadata.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from evals.exporters.exported import Exported, encode, safe_name, total_tokens
from evals.importers.record import Result, Usage

VERSION = 2


def files(run: Exported) -> Iterator[tuple[str, Iterator[bytes]]]:
    stamp = (run.began_at or run.exported_at).strftime("%Y-%m-%dT%H-%M-%S+00-00")
    yield f"{stamp}_{safe_name(run.benchmark)}_{run.id}.json", chunks(run)


def chunks(run: Exported) -> Iterator[bytes]:
    """The document in pieces, so that a run of any size needs bounded memory."""
    yield encode(header(run))[:-1] + b',"samples":['
    for number, sample in enumerate(samples(run)):
        yield (b"," if number else b"") + encode(sample)
    yield b"]}"


STATUS = {"done": "success", "running": "started", "failed": "error", "cancelled": "cancelled"}


def header(run: Exported) -> dict[str, Any]:
    began = (run.began_at or run.exported_at).isoformat()
    scores = [
        {
            "name": one.scorer,
            "scorer": one.scorer,
            "reducer": "mean",
            "scored_samples": one.num_problems,
            "params": {},
            "metrics": {
                "mean": {"name": "mean", "value": one.mean, "params": {}},
                **({"stderr": {"name": "stderr", "value": one.stderr, "params": {}}} if one.stderr is not None else {}),
            },
        }
        for one in run.measured
        if one.mean is not None
    ]
    return {
        "version": VERSION,
        "status": STATUS[run.state],
        "eval": {
            "run_id": run.id,
            "eval_id": run.id,
            "created": began,
            "task": run.benchmark,
            "task_id": run.id,
            "task_version": run.benchmark_version or 0,
            "dataset": {"name": run.benchmark},
            "model": run.model,
            "config": {},
            "packages": {},
            "metadata": {"exported_by": "strop", "measured_by": run.writer, "settings": dict(run.settings)},
        },
        "plan": {"name": "plan", "steps": [], "config": {}},
        "results": {"total_samples": _num_samples(run), "completed_samples": _num_samples(run), "scores": scores},
        "stats": {"started_at": began, "completed_at": began, "model_usage": {}},
        **({"error": {"message": run.error, "traceback": "", "traceback_ansi": ""}} if run.state == "failed" else {}),
    }


def _num_samples(run: Exported) -> int:
    return sum(1 for _ in groupby(run.results, key=lambda result: (result.problem, result.repeat)))


def samples(run: Exported) -> Iterator[dict[str, Any]]:
    for (problem, repeat), results in groupby(run.results, key=lambda result: (result.problem, result.repeat)):
        yield _sample(run, problem, repeat, list(results))


def _sample(run: Exported, problem: str, repeat: int, results: list[Result]) -> dict[str, Any]:
    first = results[0]
    usage = next((_usage(result.usage) for result in results if result.usage is not None), None)
    message = {"role": "assistant", "content": first.output, "source": "generate"}
    unscored = {result.scorer: result.explanation for result in results if result.score is None}
    asked = first.prompt if first.prompt is not None else [_message(each) for each in first.messages or ()]
    found: dict[str, Any] = {
        "id": problem,
        "epoch": repeat + 1,
        "input": asked,
        "target": first.reference or "",
        "messages": [],
        "output": {"model": run.model, "choices": [{"message": message, "stop_reason": "stop"}]},
        "scores": {result.scorer: _score(result) for result in results if result.score is not None},
        "metadata": dict(first.slices) | ({"unscored": unscored} if unscored else {}),
        "store": {},
        "events": [],
        "model_usage": {run.model: usage} if usage is not None else {},
        "attachments": {},
    }
    if first.latency_ms is not None:
        found["working_time"] = found["total_time"] = first.latency_ms / 1000
    failed = next((result for result in results if result.status == "error"), None)
    if failed is not None:
        found["error"] = {"message": failed.explanation, "traceback": "", "traceback_ansi": ""}
    return found


def _message(message: dict[str, Any]) -> dict[str, Any]:
    return {"role": message.get("role", "user"), "content": message.get("content") or ""}


def _score(result: Result) -> dict[str, Any]:
    return {"value": result.score, "answer": result.output, "explanation": result.explanation}


def _usage(usage: Usage) -> dict[str, Any]:
    found = {
        "input_tokens": usage.input or 0,
        "output_tokens": usage.output or 0,
        "total_tokens": total_tokens(usage),
        "input_tokens_cache_read": usage.cache_read,
        "input_tokens_cache_write": usage.cache_write,
        "reasoning_tokens": usage.reasoning,
    }
    return {name: number for name, number in found.items() if number is not None}
