"""The rows of what was measured elsewhere: scores, comparisons, and the problems and benchmarks that they name."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
from django.db import IntegrityError, transaction
from django.db.models import Max

from evals.importers.fields import digest
from evals.importers.record import Battle, Battles, Result, Run
from evals.models import Benchmark, Comparison, ComparisonSet, EvalRun, Problem, Score, ScoreStatus, VerdictKind
from evals.services.imported_checks import MAX_NAME, check_battle, check_result
from evals.services.raw_records import fitted, storable, storable_text
from registry.errors import InvalidInput
from registry.tenancy import tenant


def benchmark_of(produced: Run | Battles) -> Benchmark:
    """The one of this origin, made when it is new; never one that was made here. Inside a tenant."""
    name, version = storable_text(produced.benchmark), storable_text(produced.benchmark_version)
    if not 0 < len(name) <= 300 or len(version) > 100:
        raise InvalidInput("a benchmark's name has 1 to 300 characters, its version at most 100", field="benchmark")
    of = {"origin": produced.source.format, "origin_name": name, "origin_version": version}
    for _attempt in range(3):
        if found := Benchmark.objects.filter(**of).first():
            return found
        own_name = _own_name(produced.source.format, name)
        latest = Benchmark.objects.filter(name=own_name).aggregate(latest=Max("version"))["latest"] or 0
        try:
            with transaction.atomic():
                return Benchmark.objects.create(name=own_name, version=latest + 1, **of)
        except IntegrityError:
            continue  # another import made it, or took the number
    raise AssertionError("three others took the number")


def _own_name(origin: str, name: str) -> str:
    """A name that can be written in references: `<origin>:<name>` without / and @."""
    written = re.sub(r"[/@\s]+", "_", f"{origin}:{name}")
    return written if len(written) <= MAX_NAME else f"{written[: MAX_NAME - 13]}~{digest(written)}"


class _Rows:
    """Problems of one benchmark, made as results name them."""

    def __init__(self, benchmark: Benchmark) -> None:
        self.benchmark = benchmark

    def problems(self, wanted: dict[str, Problem]) -> tuple[dict[str, Problem], int]:
        """(problem id -> its row, how many have another prompt). New ones are made."""
        known = self._known(wanted)
        missing = [problem for name, problem in wanted.items() if name not in known]
        if missing:
            Problem.objects.bulk_create(missing, ignore_conflicts=True)
            known |= self._known({problem.problem_id: problem for problem in missing})
        num_different = 0
        for name, problem in wanted.items():
            there = known[name]
            if there.prompt is None and there.messages is None:
                if problem.prompt is not None or problem.messages is not None:
                    there.prompt, there.messages = problem.prompt, problem.messages
                    there.save(update_fields=["prompt", "messages"])
            elif (problem.prompt is not None and there.prompt is not None and problem.prompt != there.prompt) or (
                problem.messages is not None and there.messages is not None and problem.messages != there.messages
            ):
                num_different += 1
        return known, num_different

    def _known(self, wanted: dict[str, Problem]) -> dict[str, Problem]:
        rows = Problem.objects.filter(benchmark=self.benchmark, problem_id__in=list(wanted))
        return {problem.problem_id: problem for problem in rows}

    def forget_problems(self, since: int) -> None:
        made = Problem.objects.filter(benchmark=self.benchmark, id__gt=since)
        made.filter(scores__isnull=True, comparisons__isnull=True).delete()

    def forget_benchmark(self) -> None:
        """Where nothing is on it."""
        row = self.benchmark
        if not (row.runs.exists() or row.comparison_sets.exists() or row.problems.exists()):
            row.delete()

    def newest_problem(self) -> int:
        return Problem.objects.filter(benchmark=self.benchmark).aggregate(newest=Max("id"))["newest"] or 0


Key = tuple[Any, ...]


class ScoresOf(_Rows):
    def __init__(self, run: EvalRun, benchmark: Benchmark) -> None:
        super().__init__(benchmark)
        self.run = run

    def count(self, project_id: UUID) -> int:
        with tenant(project_id):
            return Score.objects.filter(run=self.run).count()

    def newest(self) -> tuple[int, int]:
        newest = Score.objects.filter(run=self.run).aggregate(newest=Max("id"))["newest"] or 0
        return newest, self.newest_problem()

    def forget(self, since: tuple[int, int]) -> None:
        Score.objects.filter(run=self.run, id__gt=since[0]).delete()
        self.forget_problems(since[1])

    def store(self, results: Sequence[Result], *, first: int) -> dict[str, int]:
        for place, result in enumerate(results, start=first):
            check_result(result, place=place)
        wanted: dict[str, Problem] = {}
        for result in results:
            wanted.setdefault(storable_text(result.problem), self._problem(result))
        problems, prompts = self.problems(wanted)
        kept = {
            (row.problem_id, row.scorer, row.repeat): _compared(row)
            for row in Score.objects.filter(run=self.run, problem__in=[problems[name] for name in wanted]).only(
                "problem_id", "scorer", "repeat", "status", "value", "raw_score", "output"
            )
        }
        counts: Counter[str] = Counter(prompts=prompts)
        rows = []
        for result in results:
            row, is_cut = self._row(result, problems[storable_text(result.problem)])
            key = (row.problem_id, row.scorer, row.repeat)
            if key in kept:
                counts["known" if kept[key] == _compared(row) else "conflicts"] += 1
                continue
            kept[key] = _compared(row)
            counts["cut"] += is_cut
            rows.append(row)
        Score.objects.bulk_create(rows, ignore_conflicts=True)
        counts["new"] += len(rows)
        return counts

    def _problem(self, result: Result) -> Problem:
        return Problem(
            benchmark=self.benchmark,
            problem_id=storable_text(result.problem),
            prompt=None if result.prompt is None or result.messages is not None else storable_text(result.prompt),
            messages=None if result.messages is None else storable(result.messages),
            reference=None if result.reference is None else storable_text(result.reference),
            slices=storable(result.slices),
        )

    def _row(self, result: Result, problem: Problem) -> tuple[Score, bool]:
        raw, is_cut = fitted(result.raw)
        row = Score(
            run=self.run,
            problem=problem,
            scorer=storable_text(result.scorer),
            repeat=result.repeat,
            status=ScoreStatus(result.status),
            value=result.score,
            raw_score=storable(result.raw_score),
            explanation=storable_text(result.explanation),
            output=storable_text(result.output),
            slices=storable(result.slices),
            usage=msgspec.to_builtins(result.usage) if result.usage is not None else {},
            cost_usd=result.cost_usd,
            latency_ms=result.latency_ms,
            raw=raw,
        )
        return row, is_cut


def _compared(row: Score) -> Key:
    return row.status, row.value, json.dumps(row.raw_score, sort_keys=True), row.output


class ComparisonsOf(_Rows):
    def __init__(self, comparisons: ComparisonSet, benchmark: Benchmark) -> None:
        super().__init__(benchmark)
        self.set = comparisons

    def count(self, project_id: UUID) -> int:
        with tenant(project_id):
            return Comparison.objects.filter(set=self.set).count()

    def newest(self) -> tuple[int, int]:
        newest = Comparison.objects.filter(set=self.set).aggregate(newest=Max("id"))["newest"] or 0
        return newest, self.newest_problem()

    def forget(self, since: tuple[int, int]) -> None:
        Comparison.objects.filter(set=self.set, id__gt=since[0]).delete()
        self.forget_problems(since[1])

    def store(self, battles: Sequence[Battle], *, first: int) -> dict[str, int]:
        for place, battle in enumerate(battles, start=first):
            check_battle(battle, place=place)
        wanted = {
            name: Problem(benchmark=self.benchmark, problem_id=name, slices=storable(battle.slices))
            for battle in reversed(battles)
            if (name := storable_text(battle.problem))
        }
        problems, _ = self.problems(wanted)
        there = Comparison.objects.filter(set=self.set, problem__in=list(problems.values()))
        kept = {
            (problem, left, right, rater, repeat): (verdict, preference)
            for problem, left, right, rater, repeat, verdict, preference in there.values_list(
                "problem_id", "left", "right", "rater", "repeat", "verdict", "preference"
            )
        }
        counts: Counter[str] = Counter()
        rows = []
        for battle in battles:
            row, is_cut = self._row(battle, problems[storable_text(battle.problem)])
            key = (row.problem_id, row.left, row.right, row.rater, row.repeat)
            said = (str(row.verdict), row.preference)
            if key in kept:
                counts["known" if kept[key] == said else "conflicts"] += 1
                continue
            kept[key] = said
            counts["cut"] += is_cut
            rows.append(row)
        Comparison.objects.bulk_create(rows, ignore_conflicts=True)
        counts["new"] += len(rows)
        return counts

    def _row(self, battle: Battle, problem: Problem) -> tuple[Comparison, bool]:
        raw, is_cut = fitted(battle.raw)
        row = Comparison(
            set=self.set,
            problem=problem,
            left=storable_text(battle.left),
            right=storable_text(battle.right),
            left_text=storable_text(battle.left_text),
            right_text=storable_text(battle.right_text),
            by=battle.by,
            verdict=VerdictKind(battle.winner),
            rater=storable_text(battle.rater),
            repeat=battle.repeat,
            preference=battle.preference,
            slices=storable(battle.slices),
            cost_usd=battle.cost_usd,
            judged_at=battle.at,
            raw=raw,
        )
        return row, is_cut
