"""What pages, reports and the gate read of benchmarks and runs. Inside a tenant; nothing here writes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from django.db.models import Count, Q

from evals.judging.completer import Prompt
from evals.models import Benchmark, Comparison, EvalRun, Problem, Score, ScoreStatus
from evals.refs import BenchmarkRef, ProblemRef, benchmark_ref
from evals.scorers.scorer import ProblemSpec
from evals.statistics.means import mean
from evals.statistics.paired import PairedDifference, paired_difference
from registry.errors import InvalidInput, NotFound

REFUSED = "refused"  # in Score.parts: whoever was asked said that the request itself is wrong; it is not asked again


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """How a run stands. The mean is over scored answers only; what is not scored is counted beside it."""

    num_problems: int
    num_answered: int
    num_scored: int
    num_unscored: int
    num_errors: int
    num_infra: int
    num_refused: int  # part of num_infra
    mean: float | None  # None when nothing is scored


def find_benchmark(ref: str | BenchmarkRef) -> Benchmark:
    """Raises NotFound."""
    wanted = benchmark_ref(ref) if isinstance(ref, str) else ref
    found = Benchmark.objects.filter(name=wanted.name, version=wanted.version).first()
    if found is None:
        raise NotFound(f"there is no benchmark {wanted}")
    return found


def newest_benchmark(text: str) -> Benchmark:
    """`<name>@<version>`, or a name alone for its newest version that is no draft. Raises NotFound."""
    if "@" in text:
        return find_benchmark(text)
    versions = Benchmark.objects.filter(name=text).exclude(digest="", origin="").order_by("-version")
    found = versions.first()
    if found is None:
        raise NotFound(f"there is no benchmark {text[:100]!r}, or all of it is still being collected")
    return found


def find_problem(ref: ProblemRef) -> Problem:
    """Raises NotFound."""
    found = (
        Problem.objects.filter(
            benchmark__name=ref.benchmark.name, benchmark__version=ref.benchmark.version, problem_id=ref.problem_id
        )
        .select_related("benchmark")
        .first()
    )
    if found is None:
        raise NotFound(f"there is no problem {ref}")
    return found


def find_comparison(comparison_id: int) -> Comparison:
    """With its problem, judge and calls. Raises NotFound."""
    found = (
        Comparison.objects.filter(pk=comparison_id)
        .select_related("problem__benchmark", "judge")
        .prefetch_related("calls")
        .first()
    )
    if found is None:
        raise NotFound("no such comparison")
    return found


def problems(benchmark: Benchmark) -> dict[str, dict[str, str]]:
    """Problem id -> slices, e.g. {"add/1": {"family": "add", "half": "seen families"}}."""
    return dict(Problem.objects.filter(benchmark=benchmark).values_list("problem_id", "slices"))


def spec_of(problem: Problem) -> ProblemSpec:
    """The row as scorers and completers see it."""
    return ProblemSpec(
        id=problem.problem_id,
        prompt=problem.prompt,
        messages=problem.messages,
        tests=problem.tests,
        slices=problem.slices,
    )


def prompt_of(problem: Problem) -> Prompt:
    """What a completer is asked: the raw text, or the chat."""
    if problem.prompt is not None:
        return problem.prompt
    if problem.messages is None:
        raise InvalidInput(f"problem {problem.problem_id} came in without its text", field="problem")
    return problem.messages


def scores(run: EvalRun) -> dict[str, float | None]:
    """Problem id -> value by the scorer that stands for the run, None where the answer is not scored.

    Problems not answered yet are absent. Repeats of a problem are averaged first, so that the problem stays the unit.
    """
    values: dict[str, list[float | None]] = {}
    by_scorer = Score.objects.filter(run=run, scorer=run.scorer)
    for problem_id, value in by_scorer.values_list("problem__problem_id", "value"):
        values.setdefault(problem_id, []).append(value)
    return {problem_id: _mean_of_scored(repeats) for problem_id, repeats in values.items()}


def side_effects(
    run: EvalRun, *, facts: Mapping[str, Callable[[str], bool]] | None = None
) -> dict[str, dict[str, float]]:
    """What comes with the answers: name -> problem -> value, averaged over repeats; what was not measured is absent.

    `empty answers` is 1 where the answer holds nothing but space; `output tokens`; `latency ms`; and of each of `facts`
    whether it holds of the answer's text.
    """
    facts = {"empty answers": lambda text: not text.strip(), **(facts or {})}
    found: dict[str, dict[str, list[float]]] = {name: {} for name in (*facts, "output tokens", "latency ms")}
    rows = Score.objects.filter(run=run, scorer=run.scorer, status__in=(ScoreStatus.SCORED, ScoreStatus.UNSCORED))
    for problem_id, output, usage, latency_ms in rows.values_list(
        "problem__problem_id", "output", "usage", "latency_ms"
    ):
        for name, holds in facts.items():
            found[name].setdefault(problem_id, []).append(float(holds(output)))
        if isinstance(tokens := usage.get("output"), int):
            found["output tokens"].setdefault(problem_id, []).append(float(tokens))
        if latency_ms is not None:
            found["latency ms"].setdefault(problem_id, []).append(latency_ms)
    return {name: {key: mean(values) for key, values in by.items()} for name, by in found.items() if by}


def summary(run: EvalRun) -> RunSummary:
    """Counts and mean of one run, by the scorer that stands for it."""
    counts = Score.objects.filter(run=run, scorer=run.scorer).aggregate(
        answered=Count("id"),
        refused=Count("id", filter=Q(parts__has_key=REFUSED)),
        **{status: Count("id", filter=Q(status=status)) for status in ScoreStatus.values},
    )
    scored = [value for value in scores(run).values() if value is not None]
    return RunSummary(
        num_problems=Problem.objects.filter(benchmark_id=run.benchmark_id).count(),
        num_answered=counts["answered"],
        num_scored=counts["scored"],
        num_unscored=counts["unscored"],
        num_errors=counts["error"],
        num_infra=counts["infra"],
        num_refused=counts["refused"],
        mean=sum(scored) / len(scored) if scored else None,
    )


def refusals(run: EvalRun) -> dict[str, int]:
    """Why requests of this run were refused as wrong -> how many."""
    said = Score.objects.filter(run=run, parts__has_key=REFUSED).values_list("explanation")
    return dict(said.annotate(n=Count("id")).order_by("-n", "explanation"))


def compare_runs(new: EvalRun, old: EvalRun, *, cluster_by: str = "family") -> PairedDifference:
    """Paired difference new - old, clustered by a slice. Raises NothingInCommon.

    Runs on different benchmarks, or with different scorers, measure different things and are refused with ValueError.
    """
    if (new.benchmark_id, new.scorer) != (old.benchmark_id, old.scorer):
        raise ValueError(f"{new} by {new.scorer} and {old} by {old.scorer} do not measure the same")
    slices = problems(new.benchmark)
    clusters: Mapping[str, str] = {key: parts[cluster_by] for key, parts in slices.items() if cluster_by in parts}
    return paired_difference(scores(new), scores(old), clusters=clusters)


def _mean_of_scored(repeats: list[float | None]) -> float | None:
    scored = [value for value in repeats if value is not None]
    return sum(scored) / len(scored) if scored else None
