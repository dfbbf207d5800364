"""A judge compares answers of a candidate with those of the serving checkpoint, for the gate.

Job `rl_online.judge` does so after the gate has decided: shown, without a vote. Where the plan's limits ask for a vote
(`judged`), the proof itself does so before, see rl_online.services.voting.

The judge is the plan's, else the one of the settings, else the frozen first checkpoint of the policy, which engines
hold while this waits. A policy may not judge itself, so that the base judges only where a person has allowed it.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from evals.judging.judge import Judge
from evals.models import Comparison, EvalRun, JudgeVersion
from evals.services import judges
from evals.services.budgets import why_stopped
from evals.services.completers import completer_of
from evals.services.judgements import BY_JUDGE, judge_pairs, num_open
from evals.services.ratings import ITSELF
from jobs.services import ClaimedJob, NotYet
from registry.errors import InvalidInput
from registry.models import Checkpoint
from registry.tenancy import tenant
from rl_online.gate.suites import Suite
from rl_online.models import GateReport, LearningPlan
from rl_online.services.answers import is_answered, run_of
from rl_online.services.holdings import first_checkpoint, is_held
from rl_online.services.plans import suites_of

JUDGE_JOB = "rl_online.judge"
LOOK_AGAIN_S = 1.0
TIMEOUT_S = 60.0  # of a worker's time; Celery ends a task at 90 s
PATIENCE = timedelta(minutes=10)  # for an engine to hold the base
SAMPLING = {"temperature": 0, "max_tokens": 96}

Sides = tuple[EvalRun, EvalRun]  # answers of the candidate and of the serving checkpoint to one suite


def judge_job(job: ClaimedJob) -> None:
    """Nothing where the candidate and the serving checkpoint have not both answered.

    A judge whose budget is spent, or that no engine holds in time, is not asked, and the report says so.
    """
    project_id = job.project_id
    assert project_id is not None
    with tenant(project_id):
        report = GateReport.objects.select_related("checkpoint__policy").get(id=job.payload["report"])
        plan = LearningPlan.objects.select_related("gate_judge", "policy").get(policy=report.checkpoint.policy)
        sides = _sides(report, plan)
        judge = judge_for(plan)
        spent = why_stopped(judge)
        refusal = refusal_of(judge, str(report.checkpoint)) or ("" if _has_spoken(judge, sides) else spent)
        waits_for = not_held(judge, plan)
    if not sides or plan.judged_pairs == 0:
        return
    if not refusal and waits_for and timezone.now() - report.created_at > PATIENCE:
        refusal = f"no engine held {waits_for} within {PATIENCE.total_seconds() / 60:.0f} minutes"
    if refusal:
        with job.effect(), tenant(project_id):
            GateReport.objects.filter(id=report.id).update(judge=refused(judge, refusal))
        return
    if waits_for:
        raise NotYet(LOOK_AGAIN_S, f"waits until the engine holds {waits_for}")
    job.renew(TIMEOUT_S + settings.JOB_LEASE_S)
    limit = 0 if spent else plan.judged_pairs  # spent since an earlier try: what that heard is shown
    found = judge_sides(project_id, judge, sides, limit=limit, timeout_s=TIMEOUT_S)
    with job.effect(), tenant(project_id):
        GateReport.objects.filter(id=report.id).update(judge=found)


def _has_spoken(judge: JudgeVersion, sides: Sequence[Sides]) -> bool:
    """About the two sides, whatever the suite."""
    names = {"left": sides[0][0].checkpoint, "right": sides[0][1].checkpoint} if sides else {}
    return Comparison.objects.filter(judge=judge, by=BY_JUDGE, **names).exists()


def judge_for(plan: LearningPlan) -> JudgeVersion:
    """The row of the judge that compares for this plan. Inside a tenant."""
    if plan.gate_judge is not None:
        return plan.gate_judge
    if settings.JUDGE_URL:
        return judges.version_of(Judge(name="judge", model=settings.JUDGE_MODEL, sampling=SAMPLING))
    return judges.version_of(Judge(name="base", model=str(first_checkpoint(plan.policy_id)), sampling=SAMPLING))


def refusal_of(judge: JudgeVersion, candidate: str) -> str:
    """Why it is not asked about this candidate: it would judge its own policy, and nobody has allowed that; or it can
    be asked no more. Empty where it is. Inside a tenant."""
    if judges.judges_itself(judge, candidate) and not judges.duty_of(judge).may_judge_itself:
        return ITSELF
    try:
        completer_of(judge)
    except InvalidInput as error:
        return error.message
    return ""


def refused(judge: JudgeVersion, reason: str) -> dict[str, Any]:
    """What a report shows of a judge that was not asked."""
    return {"name": judge.name, "model": judge.model, "win_rate": None, "refused": reason}


def not_held(judge: JudgeVersion, plan: LearningPlan) -> Checkpoint | None:
    """The base, where it is the judge and no engine holds it yet. Inside a tenant."""
    base = first_checkpoint(plan.policy_id)
    return base if not judge.endpoint and judge.model == str(base) and not is_held(base) else None


def sides_of(suites: Sequence[Suite], candidate: str, serving: str) -> list[Sides]:
    """Of the suites that both have answered. Inside a tenant."""
    found = [
        (run_of(suite, candidate), run_of(suite, serving))
        for suite in suites
        if is_answered(suite, candidate) and is_answered(suite, serving)
    ]
    return [(left, right) for left, right in found if left and right]


def judge_sides(
    project_id: UUID,
    judge: JudgeVersion,
    sides: Sequence[Sides],
    *,
    limit: int,
    timeout_s: float,
) -> dict[str, Any]:
    """Up to `limit` pairs, spread evenly over the suites that have some, and the report on all of them. Outside a
    transaction."""
    with tenant(project_id):
        completer = completer_of(judge)
        limits = spread(limit, [num_open(left, right, judge) for left, right in sides])
    found: dict[str, Any] = {}
    num_asked = max(1, sum(one > 0 for one in limits))
    for (left, right), most in zip(sides, limits, strict=True):
        found = judge_pairs(
            project_id,
            left_run=left,
            right_run=right,
            completer=completer,
            judge=judges.judge_of(judge),
            limit=most,
            timeout_s=timeout_s / num_asked,
        )
    return found


def spread(limit: int, room: Sequence[int]) -> list[int]:
    """Example: 10 over places for 2, 9 and 9 -> 2, 4, 4"""
    found = [0] * len(room)
    places = sorted(range(len(room)), key=room.__getitem__)
    for number, place in enumerate(places):
        found[place] = min(room[place], -(-(limit - sum(found)) // (len(room) - number)))
    return found


def _sides(report: GateReport, plan: LearningPlan) -> list[Sides]:
    """As the gate saw them."""
    serving = [found["checkpoint"] for found in report.evidence["findings"] if found["role"] == "serving"]
    return sides_of(suites_of(plan), str(report.checkpoint), serving[0]) if serving else []
