"""Job `rl_online.judge`: after the gate has decided, a judge compares a few answers. Shown, without a vote.

The judge of the settings, or else the frozen first checkpoint of the policy, which engines hold while this job waits. A
policy may not judge itself, so that the base judges only where a person has allowed it on its page.
"""

from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from evals.judging.judge import Judge
from evals.models import EvalRun, RunState
from evals.services.completers import judge_completer
from evals.services.judgements import judge_pairs
from evals.services.judges import duty_of, judges_itself, version_of
from evals.services.ratings import ITSELF
from jobs.services import ClaimedJob, NotYet
from registry.models import Checkpoint
from registry.tenancy import tenant
from rl_online.models import GateReport, LearningPlan
from rl_online.services.answers import SCORER
from rl_online.services.holdings import first_checkpoint, is_held

JUDGE_JOB = "rl_online.judge"
LOOK_AGAIN_S = 1.0
TIMEOUT_S = 60.0
PATIENCE = timedelta(minutes=10)  # for an engine to hold the base
SAMPLING = {"temperature": 0, "max_tokens": 96}


def judge_job(job: ClaimedJob) -> None:
    """Nothing where the candidate and the serving checkpoint have not both answered."""
    project_id = job.project_id
    assert project_id is not None
    with tenant(project_id):
        report = GateReport.objects.select_related("checkpoint__policy").get(id=job.payload["report"])
        runs = _runs(report)
        base = first_checkpoint(report.checkpoint.policy_id)
        limit = LearningPlan.objects.get(policy=report.checkpoint.policy).judged_pairs
        is_ready = bool(settings.JUDGE_URL) or is_held(base)
        judge = judge_of(project_id, base)
        version = version_of(judge)
        is_refused = judges_itself(version, str(report.checkpoint)) and not duty_of(version).may_judge_itself
    if runs is None or limit == 0:
        return
    if is_refused:
        with job.effect(), tenant(project_id):
            said = {"name": judge.name, "model": judge.model, "win_rate": None, "refused": ITSELF}
            GateReport.objects.filter(id=report.id).update(judge=said)
        return
    if not is_ready and timezone.now() - report.created_at > PATIENCE:
        return
    if not is_ready:
        raise NotYet(LOOK_AGAIN_S, f"waits until the engine holds {base}")
    job.renew(TIMEOUT_S + settings.JOB_LEASE_S)
    left, right = runs
    found = judge_pairs(
        project_id,
        left_run=left,
        right_run=right,
        completer=judge_completer(project_id, base_checkpoint=str(base)),
        judge=judge,
        limit=limit,
        timeout_s=TIMEOUT_S,
    )
    with job.effect(), tenant(project_id):
        GateReport.objects.filter(id=report.id).update(judge=found)


def judge_of(project_id: UUID, base: Checkpoint) -> Judge:
    if settings.JUDGE_URL:
        return Judge(name="judge", model=settings.JUDGE_MODEL, sampling=SAMPLING)
    return Judge(name="base", model=str(base), sampling=SAMPLING)


def _runs(report: GateReport) -> tuple[EvalRun, EvalRun] | None:
    """The candidate's answers and the serving checkpoint's, as the gate saw them."""
    serving = [found["checkpoint"] for found in report.evidence["findings"] if found["role"] == "serving"]
    plan = LearningPlan.objects.get(policy=report.checkpoint.policy)
    if not serving or plan.gate_benchmark is None:
        return None
    name, _, version = plan.gate_benchmark.rpartition("@")
    runs = EvalRun.objects.select_related("benchmark").filter(
        benchmark__name=name, benchmark__version=version, scorer=SCORER, state=RunState.DONE
    )
    left = runs.filter(checkpoint=str(report.checkpoint)).order_by("-started_at").first()
    right = runs.filter(checkpoint=serving[0]).order_by("-started_at").first()
    return (left, right) if left and right else None
