"""Rows for the Evaluate pages and Costs, as runs, judges and users leave them behind.

Every function runs inside `with tenant(project.id):`.
"""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.utils import timezone

from evals.judging.judge import Judge, Protocol
from evals.models import Benchmark, CanaryRun, Comparison, EvalRun, JudgeCall, JudgeVersion, LiveRating, Problem, Score
from evals.services.uploads import UPLOAD_JOB
from feedback.services.rollups import count_all_dirty
from jobs.services import enqueue
from registry.models import Budget, PriceCard
from registry.tenancy import current_project_id, tenant

FAMILIES = ("add", "sort", "text", "dates")


def make_benchmark(
    name: str = "editor-gate", *, version: int = 1, size: int = 40, closed: bool = False, **columns: Any
) -> Benchmark:
    benchmark = Benchmark.objects.create(name=name, version=version)
    Problem.objects.bulk_create(
        Problem(
            benchmark=benchmark,
            problem_id=f"{FAMILIES[i % len(FAMILIES)]}/{i}",
            prompt=f"def solve_{i}(a):\n    return",
            slices={"family": FAMILIES[i % len(FAMILIES)], "half": ("seen families", "unseen families")[i // 2 % 2]},
            **columns,
        )
        for i in range(size)
    )
    if closed:
        benchmark.digest = f"{benchmark.pk:064d}"
        benchmark.save()
    return benchmark


def make_run(
    benchmark: Benchmark, name: str, *, solves: float = 0.5, seed: int = 1, cost: Decimal | None = None, **columns: Any
) -> EvalRun:
    """A finished run that solves this share of the problems, the same ones for one seed as far as they go."""
    of = {"checkpoint": name} if "@" in name else {"model": name}
    run = EvalRun.objects.create(**{"benchmark": benchmark, "scorer": "unit_tests", "state": "done"} | of | columns)
    chance = random.Random(seed)
    scores = []
    for i, problem in enumerate(Problem.objects.filter(benchmark=benchmark).order_by("id")):
        is_lost = i % 19 == 18
        value = None if is_lost else float(chance.random() < solves)
        scores.append(
            Score(
                run=run,
                problem=problem,
                scorer="unit_tests",
                status="infra" if is_lost else "scored",
                value=value,
                output=f" a + {i}\n    # {name}",
                explanation="3 of 3 tests passed" if value else "assert solve(1) == 2, found 1",
                latency_ms=80.0 + 7 * i + 40 * solves,
                usage={"input": 60, "output": 20 + i % 5},
                cost_usd=cost,
            )
        )
    Score.objects.bulk_create(scores)
    return run


def make_judge(name: str = "base", model: str = "editor@1", **columns: Any) -> JudgeVersion:
    judge = Judge(name=name, model=model, protocol=Protocol(columns.get("protocol", "pairwise")))
    parts = {
        "name": name, "model": model, "template": judge.template, "prompt_digest": judge.prompt_digest,
        "parser_version": judge.parser_version,
    }  # fmt: skip
    return JudgeVersion.objects.create(**parts | columns)


def make_judgement(judge: JudgeVersion | None, problem: Problem | None, verdict: str, **said: Any) -> Comparison:
    """The answers of both sides' newest runs, judged in both orders, or by a person when there is no judge."""
    return make_judgements([(judge, problem, verdict, said)])[0]


def make_judgements(
    rows: Sequence[tuple[JudgeVersion | None, Problem | None, str, dict[str, Any]]],
) -> list[Comparison]:
    """Many at once; of each judge, problem, verdict, and what differs from the usual."""
    answers = _answers({problem.pk for _, problem, _, _ in rows if problem})
    comparisons, calls = [], []
    for judge, problem, verdict, said in rows:
        said = {"left": "editor@2", "right": "editor@1"} | said
        cost = said.pop("cost", None)
        raw = said.pop("raw", '{"rationale": "shorter", "verdict": "A"}')
        of = problem.pk if problem else None
        comparison = Comparison(
            **{
                "problem": problem, "by": "judge" if judge else "person", "judge": judge, "verdict": verdict,
                "left_text": answers.get((said["left"], of), " a + 2"),
                "right_text": answers.get((said["right"], of), " a * 2"),
            } | said
        )  # fmt: skip
        comparisons.append(comparison)
        is_error = verdict == "error"
        calls += [
            JudgeCall(
                comparison=comparison, judge=judge, order=order, verdict=verdict, raw="" if is_error else raw,
                error="status 401" if is_error else "", usage={} if is_error else {"input": 300, "output": 40},
                cost_usd=cost, latency_ms=None if is_error else 420.0,
            )
            for order in ("lr", "rl") if judge
        ]  # fmt: skip
    Comparison.objects.bulk_create(comparisons)
    for call in calls:
        call.comparison, call.cache_key = call.comparison, f"{call.comparison.pk}-{call.order}"
    JudgeCall.objects.bulk_create(calls)
    return comparisons


def _answers(problems: set[Any]) -> dict[tuple[str, Any], str]:
    """(checkpoint or model, problem) -> what its newest run said."""
    scores = Score.objects.filter(problem__in=problems, run__isnull=False, repeat=0).order_by("run__started_at", "pk")
    rows = scores.values_list("run__checkpoint", "run__model", "problem", "output")
    return {(name, problem): output for *names, problem, output in rows for name in names if name and output}


def make_rating(judge: JudgeVersion, turn: str, value: float | None = 0.75, **columns: Any) -> LiveRating:
    """What a judge of single answers made of a turn, with its reply."""
    rating = LiveRating.objects.create(
        **{
            "judge": judge, "subject": "turn", "subject_ref": turn, "rated": "editor@1", "num_chars": 40,
            "state": "error" if value is None else "scored", "value": value, "judged_at": timezone.now(),
            "mark": None if value is None else 1 + 4 * value, "reason": "status 401" if value is None else "",
        } | columns
    )  # fmt: skip
    JudgeCall.objects.create(
        rating=rating, judge=judge, cache_key=turn[:64], verdict="error" if value is None else "scored", value=value,
        mark=rating.mark, raw="" if value is None else f'{{"rationale": "fine", "score": {rating.mark}}}',
        error=rating.reason, cost_usd=None if value is None else Decimal("0.002"), latency_ms=300.0,
    )  # fmt: skip
    return rating


def make_canaries(judge: JudgeVersion, standing: str = "failed", **columns: Any) -> CanaryRun:
    won = standing == "failed"
    return CanaryRun.objects.create(
        **{
            "judge": judge, "state": "done", "standing": standing, "requested_by": "ada", "num_calls": 4,
            "num_unpriced": 4, "finished_at": timezone.now(),
            "sentence": "1 of 2 canaries won (colon)" if won else "none of 2 canaries won",
            "results": [
                {
                    "name": name,
                    "verdict": verdict,
                    "calls": [{"order": "lr", "verdict": verdict, "raw": '{"verdict": "A"}', "error": ""}],
                }
                for name, verdict in (("empty", "left"), ("colon", "right" if won else "left"))
            ],
        } | columns
    )  # fmt: skip


def make_card(model: str, *, at: datetime | None = None, **prices: Any) -> PriceCard:
    at = at or timezone.now() - timedelta(days=40)
    return PriceCard.objects.create(model=model, valid_from=at.replace(minute=0, second=0, microsecond=0), **prices)


def make_budget(kind: str = "total", period: str = "day", *, usd: str = "10", **columns: Any) -> Budget:
    columns = {"alert_percents": [50, 80, 100]} | columns
    return Budget.objects.create(kind=kind, period=period, usd=Decimal(usd), **columns)


def count_hours() -> None:
    """Bring the hourly counts up to date, as the workers do."""
    count_all_dirty(current_project_id())


def make_facts(project: Any) -> dict[str, Any]:
    """One problem, one judge, one comparison, one rating and one budget, for the table of addresses."""
    with tenant(project.id):
        problem = Problem.objects.filter(benchmark=make_benchmark(size=1)).get()
        judge = make_judge()
        rating = make_rating(make_judge("marks", "judge-small", protocol="pointwise"), "turn-1")
        comparison = make_judgement(judge, problem, "left")
        budget = make_budget("judging", "month")
        return {
            "problem": problem.pk, "judge": judge.pk, "comparison": comparison.pk, "rating": rating.pk,
            "budget": budget.pk,
        }  # fmt: skip


def make_run_facts(project: Any) -> dict[str, Any]:
    """A finished run with its benchmark, and an upload that waits for a worker."""
    with tenant(project.id):
        run = make_run(make_benchmark("listed", size=3), "gpt-x")
        payload = {"folder": "gone", "names": ["run.json"], "format": None}
        upload = enqueue(UPLOAD_JOB, project_id=project.id, payload=payload)
        return {"eval_run": run.pk, "benchmark": run.benchmark_id, "upload": upload}


def make_evaluated(loop: Any) -> dict[str, Any]:
    """Everything on top of `factories.make_loop`: runs, judges with verdicts, votes of people, prices, costs."""
    from tests.console import factories

    gate = make_benchmark()
    runs = [
        make_run(gate, "editor@1", solves=0.45),
        make_run(gate, "editor@2", solves=0.6),
        make_run(gate, "editor@3", solves=0.35),
        make_run(gate, "gpt-5", solves=0.9, cost=Decimal("0.004")),
    ]
    make_run(make_benchmark("editor-old"), "editor@1")
    base, outside = make_judge(), make_judge("judge", "judge-large")
    problems = list(Problem.objects.filter(benchmark=gate).order_by("id"))
    chance = random.Random(5)
    judged: list[tuple[JudgeVersion | None, Problem | None, str, dict[str, Any]]] = []
    for i, problem in enumerate(problems):
        verdict = chance.choices(["left", "right", "tie", "both_bad", "invalid"], [5, 3, 2, 1, 1])[0]
        judged.append((base, problem, verdict, {}))
        judged.append((outside, problem, chance.choice(["left", "tie"]), {"cost": Decimal("0.0012")}))
        if i % 3 == 0:
            judged.append((base, problem, chance.choice(["left", "right"]), {"left": "editor@3", "right": "editor@2"}))
            judged.append((None, problem, chance.choice(["left", "tie", "right"]), {}))
    make_judgements(judged)
    make_judgement(outside, problems[0], "error", left="editor@3")
    make_canaries(base, "failed")
    make_canaries(outside, "passed")
    make_card("own hardware", device_hour_usd=Decimal("2.40"))
    make_card("gpt-5", input_usd=Decimal("1.25"), cache_read_usd=Decimal("0.125"), output_usd=Decimal(10))
    unheard: dict[str, Any] = {"outcome": None, "signals": ()}
    rows: dict[str, dict[str, Any]] = {
        "gpt": {"version": None, "model": "gpt-5", "cache_read_tokens": 30, "source": "production"},
        "new": {"version": None, "model": "gpt-6-preview", "outcome": "reject"},
        "proved": {"version": 2, "source": "eval", "latency_ms": 300.0} | unheard,
        "judged": {"version": 1, "source": "judge", "latency_ms": 500.0} | unheard,
        "played": {"version": 1, "source": "simulated", "latency_ms": 250.0},
    }
    factories.make_turns([{"session_id": f"{name}-{i}"} | row for i in range(4) for name, row in rows.items()])
    count_hours()
    return {"gate": gate, "runs": runs, "base": base, "outside": outside, "problems": problems}
