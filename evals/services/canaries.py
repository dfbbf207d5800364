"""Putting canaries before a judge: asked for by a person, run by a job, kept for ever.

The newest finished run says where a judge stands; one that could not be asked says nothing and leaves the run before in
force. A judge that failed is paused for rewards and gates (evals.judging.trust) until it passes.
"""

import asyncio
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.utils import timezone

from evals.judging.canaries import Standing, canary_report, rate_canaries, rating_report, run_canaries
from evals.judging.completer import Completer
from evals.judging.judge import Judge
from evals.judging.pairwise import Call, Judgement
from evals.judging.pointwise import Rating, RatingCall, RatingState
from evals.judging.verdict import Verdict
from evals.models import CanaryRun, JudgeVersion, RunState
from evals.services.budgets import within_budget
from evals.services.completers import completer_of
from evals.services.judges import judge_of
from evals.services.runs import storable
from jobs.services import ClaimedJob, enqueue
from registry.errors import Conflict, InvalidInput
from registry.services import audit
from registry.tenancy import tenant

CANARY_JOB = "evals.canaries"
TIMEOUT_S = 60.0  # of a worker's time; Celery ends a task at 90 s


def request_canaries(judge: JudgeVersion, *, actor: str) -> CanaryRun:
    """A run that a worker carries out. Inside a tenant. Raises Conflict while one runs, InvalidInput for a judge that
    cannot judge any more."""
    completer_of(judge)
    if CanaryRun.objects.filter(judge=judge, state=RunState.RUNNING).exists():
        raise Conflict(f"canaries of {judge} are running; wait for them")
    run = CanaryRun.objects.create(judge=judge, requested_by=actor)
    audit("run canaries", "judge", judge.pk, actor=actor, after={"judge": str(judge), "run": str(run.id)})
    enqueue(CANARY_JOB, project_id=run.project_id, payload={"run": str(run.id)}, key=str(run.id))
    return run


def canaries_job(job: ClaimedJob) -> None:
    assert job.project_id is not None
    with tenant(job.project_id):
        run = CanaryRun.objects.select_related("judge").get(id=UUID(job.payload["run"]))
        completer, refusal = _completer(run.judge)
    if run.state != RunState.RUNNING:
        return
    asked = asyncio.run(_ask(completer, judge_of(run.judge))) if completer else []
    with job.effect(), tenant(job.project_id):
        if completer:
            finish(run, asked)
        else:
            run.state, run.error, run.finished_at = RunState.FAILED, refusal, timezone.now()
            run.save(update_fields=["state", "error", "finished_at"])


def finish(run: CanaryRun, asked: Sequence[Judgement] | Sequence[Rating]) -> None:
    """Write what the canaries came to. Inside a tenant."""
    judgements = [one for one in asked if isinstance(one, Judgement)]
    ratings = [one for one in asked if isinstance(one, Rating)]
    report = rating_report(ratings) if ratings else canary_report(judgements)
    costs = [call.cost_usd for one in asked for call in one.calls if _may_be_paid(call)]
    priced = [cost for cost in costs if cost is not None]
    run.results = [_result(one) for one in judgements] + [_rating_result(one) for one in ratings]
    run.standing, run.sentence = report.standing.value, report.sentence
    run.num_calls, run.num_unpriced = len(costs), len(costs) - len(priced)
    run.cost_usd = sum(priced, Decimal(0)) if priced else None
    run.state, run.finished_at = RunState.DONE, timezone.now()
    run.save()
    judge = run.judge
    after = {"judge": str(judge), "standing": run.standing, "is_paused": report.standing.is_paused}
    audit("finish canaries", "judge", judge.pk, actor=run.requested_by, after=after, reason=report.sentence)


def _may_be_paid(call: Call | RatingCall) -> bool:
    """A request without a reply is not billed; one that was given up may have been answered for all we know."""
    is_lost = call.verdict is Verdict.ERROR if isinstance(call, Call) else call.state is RatingState.ERROR
    return not is_lost or call.is_late


def standings(judges: Iterable[JudgeVersion]) -> dict[int, Standing]:
    """Where each judge stands by its newest conclusive run; inconclusive where it never had one. One query."""
    found: dict[int, Standing] = {}
    runs = CanaryRun.objects.filter(judge__in=list(judges), standing__isnull=False)
    newest = runs.order_by("judge_id", "standing", "-requested_at").distinct("judge_id", "standing")
    for judge_id, standing, _ in sorted(newest.values_list("judge_id", "standing", "requested_at"), key=_by_weight):
        found[judge_id] = Standing(standing)
    return found


def standing_of(judge: JudgeVersion) -> Standing:
    return standings([judge]).get(judge.pk, Standing.NOT_RUN)


def _by_weight(row: tuple[int, str, Any]) -> tuple[bool, Any]:
    """Inconclusive runs first, then by time: what comes last counts."""
    return row[1] != Standing.INCONCLUSIVE, row[2]


def _completer(judge: JudgeVersion) -> tuple[Completer | None, str]:
    try:
        return within_budget(judge, completer_of(judge)), ""
    except InvalidInput as error:
        return None, error.message


async def _ask(completer: Completer, judge: Judge) -> list[Judgement] | list[Rating]:
    async with completer:
        if judge.protocol.is_pairwise:
            return await run_canaries(completer, judge, timeout_s=TIMEOUT_S)
        return await rate_canaries(completer, judge, timeout_s=TIMEOUT_S)


def _result(judgement: Judgement) -> dict[str, Any]:
    return {
        "name": judgement.pair.key,
        "verdict": judgement.verdict.value,
        "calls": [
            {
                "order": call.order,
                "verdict": call.side.value,
                "raw": storable(call.raw)[:4000],
                "error": storable(call.error),
            }
            for call in judgement.calls
        ],
    }


def _rating_result(rating: Rating) -> dict[str, Any]:
    return {
        "name": rating.item.key,
        "verdict": rating.state.value,
        "value": rating.value,
        "calls": [
            {
                "order": "",
                "verdict": call.state.value,
                "mark": call.mark,
                "raw": storable(call.raw)[:4000],
                "error": storable(call.error or call.fault),
            }
            for call in rating.calls
        ],
    }
