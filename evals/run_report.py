"""What a run on a benchmark has measured so far, as commands and the API tell it. Inside a tenant."""

from typing import Any

from evals.models import EvalRun, Problem, Score
from evals.selectors_repeats import at_k, over_budget, repeats_of, tries_of
from evals.statistics.estimate import Estimate


def num_asked(run: EvalRun) -> int:
    """Answers that a run made here asks for."""
    num_problems = run.num_problems or Problem.objects.filter(benchmark_id=run.benchmark_id).count()
    return num_problems * run.num_repeats


def report_of(run: EvalRun) -> dict[str, Any]:
    """{"id", "benchmark", "checkpoint", "state", "error", "answers", "asked", "mean", "pass_at_k", "pass_hat_k",
    "flaky", "over_tokens", "over_seconds"}.

    An estimate is {"value", "low", "high", "interval", "n"}; None: scores are graded. `flaky` None: no problem was
    asked twice.
    """
    tried = tries_of(run)
    repeats, over = repeats_of(tried or ()), over_budget(run, tried)
    return {
        "id": str(run.id),
        "benchmark": str(run.benchmark),
        "checkpoint": run.checkpoint or run.model,
        "state": run.state,
        "error": run.error or None,
        "answers": Score.objects.filter(run=run, scorer=run.scorer).count(),
        "asked": num_asked(run),
        "mean": None if tried is None else _numbers(at_k(tried, 1).any_right),
        "pass_at_k": {str(one.k): _numbers(one.any_right) for one in repeats.at} if repeats else {},
        "pass_hat_k": {str(one.k): _numbers(one.all_right) for one in repeats.at} if repeats else {},
        "flaky": repeats.num_flaky if repeats else None,
        "over_tokens": over.tokens,
        "over_seconds": over.seconds,
    }


def _numbers(estimate: Estimate) -> dict[str, Any]:
    return {
        "value": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "interval": estimate.interval.value,
        "n": estimate.n,
    }
