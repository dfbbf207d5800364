"""Judging two runs pair by pair, and what the verdicts are worth.

Shown beside the gate's decision, never part of it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from evals.judge_trust import trusts
from evals.judging.completer import Completer
from evals.judging.judge import Judge
from evals.judging.pairwise import Call, Judgement, Pair, PairVerdict, judge_pair
from evals.judging.trust import without_vote
from evals.models import Comparison, EvalRun, JudgeCall, JudgeVersion, Problem, Score, VerdictKind
from evals.selectors import prompt_of
from evals.services.budgets import within_budget
from evals.services.call_cache import known_calls
from evals.services.judges import judges_itself, refuse_itself, version_of
from evals.services.runs import storable
from evals.statistics.wins import win_rate
from registry.tenancy import tenant

MAX_PAIRS = 10
BY_JUDGE = "judge"


@dataclass(frozen=True, kw_only=True)
class _Answer:
    text: str
    value: float | None


def judge_pairs(
    project_id: UUID,
    *,
    left_run: EvalRun,
    right_run: EvalRun,
    completer: Completer,
    judge: Judge,
    limit: int = MAX_PAIRS,
    timeout_s: float | None = None,
) -> dict[str, Any]:
    """Judge up to `limit` problems on which the answers differ, store every call, and report.

    What this judge said about the same two answers before, for whoever gave them, is taken from there. It stops at its
    budget of the day. Raises JudgesItself where a side is the policy that judges, unless that is allowed.

    Pairs on which the tests see a difference come first, since only they tell a judge from chance. What this judge has
    judged before is not asked again, unless it could not be asked; such pairs come last. What is not judged within
    `timeout_s` is left for another time. The report
    counts these two runs; agreement counts all this judge ever said. Call it outside a transaction.
    """
    with tenant(project_id):
        version = version_of(judge)
        refuse_itself(version, _name(left_run), _name(right_run))
        chosen = _pairs(left_run, right_run, version, limit=limit)
        cache = known_calls(judge, [pair for _, pair in chosen])
        asked = within_budget(version, completer)
    judgements = asyncio.run(_judge_all(asked, judge, [pair for _, pair in chosen], cache, timeout_s=timeout_s))
    problem_of = {pair.key: problem for problem, pair in chosen}
    with tenant(project_id):
        for judgement in judgements:
            problem = problem_of[judgement.pair.key]
            _record(version, problem, judgement, left=_name(left_run), right=_name(right_run))
        return report(version, left=_name(left_run), right=_name(right_run))


def num_open(left_run: EvalRun, right_run: EvalRun, judge: JudgeVersion) -> int:
    """Problems on which the answers differ and this judge has said nothing yet. Inside a tenant."""
    return len(_open(_answers(left_run), _answers(right_run), _of_runs(left_run, right_run, judge)))


def report(judge: JudgeVersion, *, left: str, right: str) -> dict[str, Any]:
    """Win rate of left over right, and this judge's agreement with the tests so far. Inside a tenant."""
    verdicts = [
        PairVerdict(verdict)
        for verdict in Comparison.objects.filter(judge=judge, left=left, right=right).values_list("verdict", flat=True)
    ]
    rate = win_rate([_result(verdict) for verdict in verdicts])
    trust = trusts([judge])[judge.pk]
    if judges_itself(judge, left, right):
        trust = without_vote(trust)
    agreement = trust.agreement
    return {
        "name": judge.name, "model": judge.model, "num_pairs": len(verdicts),
        "wins": rate.wins, "ties": rate.ties, "losses": rate.losses,
        "invalid": verdicts.count(PairVerdict.INVALID), "errors": verdicts.count(PairVerdict.ERROR),
        "win_rate": rate.rate, "low": rate.low, "high": rate.high, "interval": rate.interval,
        "agreement": agreement.agreement.share, "agreement_low": agreement.agreement.low,
        "agreement_high": agreement.agreement.high, "num_compared": agreement.n,
        "kappa": agreement.kappa, "kappa_low": agreement.kappa_low, "kappa_high": agreement.kappa_high,
        "has_vote": trust.has_vote, "is_paused": trust.is_paused, "sentence": trust.sentence,
    }  # fmt: skip


def record_comparison(
    *,
    problem: Problem | None,
    left: str,
    right: str,
    verdict: PairVerdict,
    by: str,
    left_text: str = "",
    right_text: str = "",
) -> Comparison:
    """A verdict of a person or of the tests. Inside a tenant."""
    return Comparison.objects.create(
        problem=problem,
        left=left,
        right=right,
        left_text=storable(left_text),
        right_text=storable(right_text),
        by=by,
        verdict=verdict.value,
    )


async def _judge_all(
    completer: Completer, judge: Judge, pairs: Sequence[Pair], cache: dict[str, Call], *, timeout_s: float | None
) -> list[Judgement]:
    if not pairs:
        return []
    async with completer:
        asked = [asyncio.create_task(judge_pair(completer, judge, pair, cache=cache)) for pair in pairs]
        done, late = await asyncio.wait(asked, timeout=timeout_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        return [task.result() for task in asked if task in done]


def _pairs(left: EvalRun, right: EvalRun, judge: JudgeVersion, *, limit: int) -> list[tuple[Problem, Pair]]:
    judged = _of_runs(left, right, judge)
    failed = set(judged.filter(verdict=VerdictKind.ERROR).values_list("problem_id", flat=True))
    lefts, rights = _answers(left), _answers(right)
    differ = _open(lefts, rights, judged)
    differ.sort(key=lambda key: (key in failed, lefts[key].value == rights[key].value, key))
    problems = Problem.objects.in_bulk(differ[:limit])
    return [
        (problem, Pair(key=problem.problem_id, task=prompt_of(problem), left=lefts[key].text, right=rights[key].text))
        for key in differ[:limit]
        for problem in (problems[key],)
    ]


def _of_runs(left: EvalRun, right: EvalRun, judge: JudgeVersion) -> QuerySet[Comparison]:
    return Comparison.objects.filter(judge=judge, left=_name(left), right=_name(right), by=BY_JUDGE)


def _open(lefts: dict[int, _Answer], rights: dict[int, _Answer], judged: QuerySet[Comparison]) -> list[int]:
    done = set(judged.exclude(verdict=VerdictKind.ERROR).values_list("problem_id", flat=True))
    return [key for key in lefts.keys() & rights.keys() if key not in done and lefts[key].text != rights[key].text]


def _answers(run: EvalRun) -> dict[int, _Answer]:
    rows = (
        Score.objects.filter(run=run, scorer=run.scorer, repeat=0)
        .exclude(status="error")
        .values_list("problem_id", "output", "value")
    )
    return {problem: _Answer(text=output, value=value) for problem, output, value in rows}


def _record(judge: JudgeVersion, problem: Problem, judgement: Judgement, *, left: str, right: str) -> None:
    said = {
        "left_text": storable(judgement.pair.left), "right_text": storable(judgement.pair.right),
        "verdict": judgement.verdict.value,
    }  # fmt: skip
    comparison, is_new = Comparison.objects.get_or_create(
        problem=problem, left=left, right=right, judge=judge, by=BY_JUDGE, defaults=said
    )
    if is_new or Comparison.objects.filter(pk=comparison.pk, verdict=VerdictKind.ERROR).update(**said):
        JudgeCall.objects.bulk_create(call_row(comparison, judge.pk, call) for call in judgement.calls)


def call_row(comparison: Comparison, judge_id: int | None, call: Call) -> JudgeCall:
    """The verdict is stored with the order taken out: left or right, not A or B."""
    return JudgeCall(
        comparison=comparison,
        judge_id=judge_id,
        order=call.order,
        cache_key=call.cache_key,
        verdict=call.side.value,
        raw=storable(call.raw),
        error=storable(call.error),
        usage=dict(call.usage),
        cost_usd=call.cost_usd,
        latency_ms=call.latency_ms,
        is_cached=call.is_cached,
    )


def _name(run: EvalRun) -> str:
    return run.checkpoint or run.model or ""


def _result(verdict: PairVerdict) -> float | None:
    if not verdict.is_decided:
        return None
    return {PairVerdict.LEFT: 1.0, PairVerdict.RIGHT: 0.0}.get(verdict, 0.5)
