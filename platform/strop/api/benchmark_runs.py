"""Benchmark runs through the API: started, followed, cancelled, gone on with."""

from typing import Any
from uuid import UUID

from ninja import Field, Router, Schema, Status

from evals.run_report import report_of
from evals.selectors import newest_benchmark
from evals.selectors_runs import find_run
from registry.services import find_checkpoint
from rl_online.services.benchmark_runs import Wanted, cancel_run, resume_run, start_run
from strop.api.access import READ, TRAIN, ApiRequest, in_project

router = Router(tags=["Benchmark runs"])


class EstimateOut(Schema):
    value: float | None = Field(description="null: undefined, which is not 0")
    low: float | None
    high: float | None
    interval: str = Field(description="which formula gave it")
    n: int = Field(description="problems it rests on")


class RunOut(Schema):
    id: UUID
    benchmark: str
    checkpoint: str | None = Field(description="<policy>@<version>, or a model's name")
    state: str = Field(description="running, done, failed or cancelled")
    error: str | None
    answers: int
    asked: int
    mean: EstimateOut | None = Field(description="over problems, repeats averaged first; null: scores are graded")
    pass_at_k: dict[str, EstimateOut]
    pass_hat_k: dict[str, EstimateOut]
    flaky: int | None = Field(description="problems right in one repeat and wrong in another; null: none was repeated")
    over_tokens: int = Field(description="answers cut off at their tokens; scored as far as they came")
    over_seconds: int = Field(description="answers given up at their seconds; unscored")


class RunIn(Schema):
    benchmark: str = Field(max_length=300, description="a name, for its newest version, or <name>@<version>")
    checkpoint: str = Field(max_length=200, description="<policy>@<version>")
    scorer: str = "unit_tests"
    samples: int = Field(1, description="answers to each problem")
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int | None = Field(None, description="budget of an answer; null: the benchmark's, else 512")
    seconds: float | None = Field(None, description="budget of an answer; null: as long as it takes")
    stop: list[str] | None = Field(None, description="null: the benchmark's")
    seed: int = 0
    limit: int | None = Field(None, description="problems, the same ones in every run; null: all")


@router.post("/benchmark-runs", response={201: RunOut}, auth=TRAIN, summary="Measure a checkpoint on a benchmark")
@in_project
def start_benchmark_run(request: ApiRequest, sent: RunIn) -> Status:
    asked = sent.dict(exclude={"benchmark", "checkpoint", "stop"})
    wanted = Wanted(**asked, stop=None if sent.stop is None else tuple(sent.stop))
    run = start_run(newest_benchmark(sent.benchmark), find_checkpoint(sent.checkpoint), wanted, actor=request.actor)
    return Status(201, report_of(run))


@router.get("/benchmark-runs/{id}", response=RunOut, auth=READ, summary="How far a run is, and what it has measured")
@in_project
def benchmark_run(request: ApiRequest, id: UUID) -> dict[str, Any]:
    return report_of(find_run(id))


@router.post("/benchmark-runs/{id}/cancel", response=RunOut, auth=TRAIN, summary="Stop a run; its answers are kept")
@in_project
def cancel_benchmark_run(request: ApiRequest, id: UUID) -> dict[str, Any]:
    cancel_run(find_run(id), actor=request.actor)
    return report_of(find_run(id))


@router.post("/benchmark-runs/{id}/resume", response=RunOut, auth=TRAIN, summary="Go on with a run")
@in_project
def resume_benchmark_run(request: ApiRequest, id: UUID) -> dict[str, Any]:
    resume_run(find_run(id), actor=request.actor)
    return report_of(find_run(id))
