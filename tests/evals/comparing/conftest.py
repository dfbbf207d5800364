"""Benchmarks and runs as rows: only what comparing reads."""

from collections.abc import Callable, Mapping

import pytest

from evals.models import Benchmark, EvalRun, Problem, Score
from registry.tenancy import tenant


@pytest.fixture
def bench(project) -> Callable[..., Benchmark]:
    """bench(version=1, problems={"p0": {"family": "add", "half": "seen"}}) -> a benchmark with these problems."""

    def make(problems: Mapping[str, dict] | None = None, *, name: str = "adding", version: int = 1) -> Benchmark:
        with tenant(project.id):
            benchmark = Benchmark.objects.create(name=name, version=version)
            for key, slices in (problems or {f"p{i}": {} for i in range(4)}).items():
                Problem.objects.create(benchmark=benchmark, problem_id=key, prompt=f"solve {key}", slices=slices)
        return benchmark

    return make


@pytest.fixture
def run(project) -> Callable[..., EvalRun]:
    """run(benchmark, "editor@1", {"p0": 1.0, "p1": None}) -> a finished run with these scores."""

    def make(benchmark: Benchmark, name: str, values: Mapping[str, float | None], *, cost=None, **columns) -> EvalRun:
        of = {"checkpoint": name} if "@" in name else {"model": name}
        with tenant(project.id):
            made = EvalRun.objects.create(
                **{"benchmark": benchmark, "scorer": "unit_tests", "state": "done"} | of | columns
            )
            problems = {one.problem_id: one for one in Problem.objects.filter(benchmark=benchmark)}
            for key, value in values.items():
                Score.objects.create(
                    run=made,
                    problem=problems[key],
                    scorer="unit_tests",
                    status="unscored" if value is None else "scored",
                    value=value,
                    output=f"{name} on {key}",
                    latency_ms=100.0,
                    usage={"output": 20},
                    cost_usd=cost,
                )
        return made

    return make
