"""every_eval_ever 0.3.0: one aggregate document, and JSON lines of instances.

Its scores are numbers that must be there. So a scorer without a single scored answer has no aggregate, an answer
without a score has no instance, and how many those are stands in the details.
"""

import hashlib
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from evals.exporters.exported import Exported, Measured, chat_text, encode, line, safe_name, total_tokens
from evals.importers.record import Claim, Result

SCHEMA_VERSION = "0.3.0"
UNKNOWN = "unknown"


def files(run: Exported) -> Iterator[tuple[str, Iterator[bytes]]]:
    name = UUID(bytes=UUID(run.id).bytes, version=4)  # the schema asks for version 4
    yield f"{name}.json", iter([encode(document(run, instances=f"{name}_samples.jsonl"))])
    yield f"{name}_samples.jsonl", (line(instance) for instance in instances(run))


def document(run: Exported, *, instances: str | None = None) -> dict[str, Any]:
    """The aggregate. `instances` names the file of instances that lies beside it."""
    results = [_measured(run, one) for one in run.measured if one.mean is not None]
    results = results or [_claimed(run, claim) for claim in run.claims if claim.value is not None]
    found: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": _id(run),
        "retrieved_timestamp": str(int(run.exported_at.timestamp())),
        "source_metadata": {
            "source_name": "Strop",
            "source_type": "evaluation_run",
            "source_organization_name": run.project,
            "evaluator_relationship": "other",
        },
        "eval_library": {"name": run.writer, "version": run.writer_version or UNKNOWN},
        "model_info": {
            "name": run.model,
            "id": run.model,
            "additional_details": {"deployment_type": UNKNOWN, "model_availability": UNKNOWN},
        },
        "evaluation_results": results,
    }
    if run.began_at is not None:
        found["evaluation_timestamp"] = run.began_at.isoformat()
    if instances is not None and run.measured:
        parts = (safe_name(run.benchmark), safe_name(run.model.partition("/")[0]), safe_name(run.model))
        found["detailed_evaluation_results"] = {"format": "jsonl", "file_path": "/".join(("data", *parts, instances))}
    return found


def _id(run: Exported) -> str:
    return f"{run.benchmark}/{run.model}/{int(run.exported_at.timestamp())}"


def _measured(run: Exported, one: Measured) -> dict[str, Any]:
    uncertainty: dict[str, Any] = {"num_samples": one.num_problems}
    if one.stderr is not None:
        uncertainty["standard_error"] = {"value": one.stderr, "method": "analytic"}
    details = {"unscored_answers": str(one.num_unscored), "unit": "problem; repeats are averaged first"}
    kind = "binary" if one.is_binary else "continuous"
    return _result(run, one.scorer, one.mean, uncertainty, details, kind, run.claim_of(one.scorer))


def _claimed(run: Exported, claim: Claim) -> dict[str, Any]:
    uncertainty: dict[str, Any] = {} if claim.n is None else {"num_samples": claim.n}
    if claim.stderr is not None:
        uncertainty["standard_error"] = {"value": claim.stderr}
    details = {"origin": "stated by the source, whose answers are not here"}
    return _result(run, claim.scorer, claim.value, uncertainty, details, None, claim, metric=claim.metric)


def _result(
    run: Exported,
    scorer: str,
    score: float | None,
    uncertainty: dict[str, Any],
    details: dict[str, str],
    kind: str | None,
    claim: Claim | None,
    *,
    metric: str | None = None,
) -> dict[str, Any]:
    config: dict[str, Any] = {
        "metric_id": metric or scorer,
        "metric_name": metric or scorer,
        "lower_is_better": claim is not None and claim.higher_is_better is False,
    }
    if kind is not None:
        config |= {"score_type": kind, "min_score": 0.0, "max_score": 1.0, "metric_unit": "proportion"}
    where = f"#{claim.where}" if metric and claim is not None and claim.where else ""
    return {
        "evaluation_result_id": f"{_id(run)}#{metric or scorer}{where}",
        "evaluation_name": run.benchmark,
        "source_data": {
            "dataset_name": run.benchmark,
            "source_type": "other",
            "additional_details": {"version": run.benchmark_version},
        },
        "metric_config": config,
        "score_details": {"score": score, "uncertainty": uncertainty, "details": details},
    }


def instances(run: Exported) -> Iterator[dict[str, Any]]:
    """One for each scored answer by each scorer."""
    yield from (_instance(run, result) for result in run.results if result.score is not None)


def _instance(run: Exported, result: Result) -> dict[str, Any]:
    asked, reference = chat_text(result), [] if result.reference is None else [result.reference]
    found: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": _id(run),
        "evaluation_result_id": f"{_id(run)}#{result.scorer}",
        "model_id": run.model,
        "evaluation_name": run.benchmark,
        "sample_id": result.problem,
        "sample_hash": hashlib.sha256((asked + "".join(reference)).encode()).hexdigest(),
        "interaction_type": "single_turn",
        "input": {"raw": asked, "reference": reference},
        "output": {"raw": [result.output]},
        "answer_attribution": [
            {
                "turn_idx": 0,
                "source": "output.raw",
                "extracted_value": result.output,
                "extraction_method": result.scorer,
                "is_terminal": True,
            }
        ],
        "evaluation": {"score": result.score, "is_correct": result.score == 1},
        "metadata": {**result.slices, "repeat": str(result.repeat)},
    }
    usage = result.usage
    if usage is not None and usage.input is not None and usage.output is not None:
        found["token_usage"] = {
            "input_tokens": usage.input,
            "output_tokens": usage.output,
            "total_tokens": total_tokens(usage),
            "input_tokens_cache_write": usage.cache_write,
            "input_tokens_cache_read": usage.cache_read,
            "reasoning_tokens": usage.reasoning,
        }
    if result.latency_ms is not None:
        found["performance"] = {"latency_ms": result.latency_ms}
    return found
