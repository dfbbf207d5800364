"""Asking a judge again where it could not be asked: blocked judgements and ratings, with the reason it gave.

What it said is kept as another call beside the failed ones; the comparison gets the verdict it lacked. Judgements that
have a verdict, or a reply without one, are left as they are.
"""

import asyncio
from collections.abc import Sequence
from uuid import UUID

from django.db.models import QuerySet

from evals.judging.completer import Completer
from evals.judging.judge import Judge
from evals.judging.pairwise import Judgement, Pair, judge_pair, late
from evals.models import Comparison, JudgeCall, JudgeVersion, VerdictKind
from evals.selectors import prompt_of
from evals.services.budgets import within_budget
from evals.services.completers import completer_of
from evals.services.judgements import BY_JUDGE, call_row
from evals.services.judges import judge_of
from evals.services.ratings import ask_again
from jobs.services import ClaimedJob, enqueue
from registry.errors import Conflict
from registry.services import audit
from registry.tenancy import tenant

RETRY_JOB = "evals.retry_judgements"
AT_ONCE = 10  # pairs a job asks for, together; the next job asks for the following ones
TIMEOUT_S = 60.0  # of a worker's time; Celery ends a task at 90 s
MAX_PAIRS = 200  # a request; the rest waits for the next


def request_retry(judge: JudgeVersion, *, actor: str) -> int:
    """How many blocked judgements and ratings a worker will ask for again. Inside a tenant.

    Raises Conflict without any, InvalidInput for a judge that cannot judge any more.
    """
    completer_of(judge)
    num = min(_blocked(judge).count(), MAX_PAIRS)
    ratings = ask_again(judge, limit=MAX_PAIRS)
    if not num + ratings:
        raise Conflict(f"{judge} has no blocked judgement")
    audit("retry judgements", "judge", judge.pk, actor=actor, after={"judge": str(judge), "judgements": num + ratings})
    if num:
        _enqueue(judge.project_id, judge.pk, after=0, left=num)
    return num + ratings


def retry_job(job: ClaimedJob) -> None:
    """One batch, in the order they were made; what fails again stays blocked and is not asked a third time."""
    assert job.project_id is not None
    with tenant(job.project_id):
        judge = JudgeVersion.objects.get(pk=job.payload["judge"])
        size = min(AT_ONCE, job.payload["left"])
        later = _blocked(judge).filter(pk__gt=job.payload["after"]).select_related("problem")
        blocked = list(later.order_by("id")[:size])
        completer = within_budget(judge, completer_of(judge))
    judgements = asyncio.run(_ask(completer, judge_of(judge), blocked)) if blocked else []
    with job.effect(), tenant(job.project_id):
        for comparison, judgement in zip(blocked, judgements, strict=True):
            record_again(comparison, judgement)
        if len(blocked) == size < job.payload["left"]:
            _enqueue(job.project_id, judge.pk, after=blocked[-1].pk, left=job.payload["left"] - size)


def _enqueue(project_id: UUID, judge_id: int, *, after: int, left: int) -> None:
    payload = {"judge": judge_id, "after": after, "left": left}
    enqueue(RETRY_JOB, project_id=project_id, payload=payload, key=f"{judge_id}:{after}")


def record_again(comparison: Comparison, judgement: Judgement) -> None:
    """The new calls, and the verdict where it was blocked. Inside a tenant."""
    JudgeCall.objects.bulk_create(call_row(comparison, comparison.judge_id, call) for call in judgement.calls)
    mine = Comparison.objects.filter(pk=comparison.pk, verdict=VerdictKind.ERROR)
    mine.update(verdict=judgement.verdict.value)


def _blocked(judge: JudgeVersion) -> QuerySet[Comparison]:
    return Comparison.objects.filter(judge=judge, by=BY_JUDGE, verdict=VerdictKind.ERROR, problem__isnull=False)


async def _ask(completer: Completer, judge: Judge, blocked: Sequence[Comparison]) -> list[Judgement]:
    async with completer:
        return list(await asyncio.gather(*(_judge(completer, judge, _pair(one)) for one in blocked)))


async def _judge(completer: Completer, judge: Judge, pair: Pair) -> Judgement:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await judge_pair(completer, judge, pair)
    except TimeoutError:
        return late(pair, f"no verdict within {TIMEOUT_S:.0f} s")


def _pair(comparison: Comparison) -> Pair:
    assert comparison.problem is not None
    return Pair(
        key=comparison.problem.problem_id,
        task=prompt_of(comparison.problem),
        left=comparison.left_text,
        right=comparison.right_text,
    )
