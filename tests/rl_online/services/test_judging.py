"""The judge after the gate: the policy's own base is not asked unless a person has allowed it."""

from datetime import timedelta

import pytest
from django.utils import timezone

from evals.models import Comparison, EvalRun, JudgeVersion, Problem, Score
from evals.scorers.scorer import ProblemSpec
from evals.services.benchmarks import create_benchmark
from evals.services.judges import change_duty
from jobs.models import Job
from jobs.services import claim, enqueue, run
from registry.models import Budget
from registry.services import register_checkpoint
from registry.tenancy import tenant
from rl_online.models import GateReport, LearningPlan
from rl_online.services.judging import JUDGE_JOB, PATIENCE, judge_for
from rl_online.services.plans import gate_sampling

pytestmark = pytest.mark.django_db


@pytest.fixture
def report(project, policy) -> GateReport:
    """Of editor@2 against editor@1, both measured."""
    tests = {"function": "f", "cases": [{"args": [1], "expected": 1}]}
    gate = create_benchmark(project.id, "gate", [ProblemSpec(id="p", prompt="def f(", tests=tests)], version=1)
    with tenant(project.id):
        LearningPlan.objects.filter(policy=policy).update(gate_benchmark="gate@1")
        candidate = register_checkpoint(
            policy, version=2, parent=policy.checkpoints.get(version=1), tree_digest="2" * 64,
            folder=f"{policy.id}/v000002", num_bytes=1, optimizer_step=1, actor="test",
        )  # fmt: skip
        sampling = gate_sampling(LearningPlan.objects.get(policy=policy))
        for name in ("editor@1", "editor@2"):
            EvalRun.objects.create(
                benchmark=gate, checkpoint=name, scorer="unit_tests", sampling=sampling, state="done"
            )
        evidence = {"findings": [{"role": "serving", "checkpoint": "editor@1"}]}
        return GateReport.objects.create(checkpoint=candidate, decision="promote", reasons=[], evidence=evidence)


def test_the_base_does_not_judge_its_own_policy_and_the_report_says_why(project, report, settings):
    settings.JUDGE_URL = ""
    with tenant(project.id):
        enqueue(JUDGE_JOB, project_id=project.id, payload={"report": report.id})
    run(claim(Job.objects.get(kind=JUDGE_JOB).id, "test"))
    with tenant(project.id):
        judge = GateReport.objects.get(id=report.id).judge
        assert (judge["model"], judge["refused"]) == ("editor@1", "a policy may not judge itself")
        assert judge["win_rate"] is None and not Comparison.objects.exists()
        assert JudgeVersion.objects.get().model == "editor@1", "its page is where it can be allowed"
    assert Job.objects.get(kind=JUDGE_JOB).state == "done"


def test_a_base_that_no_engine_held_in_time_is_said_not_to_have_been_asked(project, report, settings):
    settings.JUDGE_URL = ""
    with tenant(project.id):
        change_duty(judge_for(LearningPlan.objects.get()), actor="ada", may_judge_itself=True)
        GateReport.objects.update(created_at=timezone.now() - PATIENCE - timedelta(seconds=1))
        enqueue(JUDGE_JOB, project_id=project.id, payload={"report": report.id})
    run(claim(Job.objects.get(kind=JUDGE_JOB).id, "test"))
    with tenant(project.id):
        assert GateReport.objects.get().judge["refused"] == "no engine held editor@1 within 10 minutes"


def answer_both(gate_answers=("return 1", "return 2")) -> None:
    problem = Problem.objects.get()
    for run_, output in zip(EvalRun.objects.order_by("checkpoint"), gate_answers, strict=True):
        Score.objects.create(
            run=run_, problem=problem, scorer="unit_tests", status="scored", value=1.0, output=output, explanation=""
        )


def spend_budget() -> None:
    tomorrow = timezone.now() + timedelta(days=1)
    Budget.objects.create(kind="judging", period="day", usd=1, stops=True, spent_until=tomorrow)


def test_a_judge_whose_budget_is_spent_is_not_asked_and_the_report_says_why(project, report, settings):
    settings.JUDGE_URL, settings.JUDGE_MODEL = "http://127.0.0.1:9/v1", "judge-large"
    with tenant(project.id):
        answer_both()
        spend_budget()
        enqueue(JUDGE_JOB, project_id=project.id, payload={"report": report.id})
    run(claim(Job.objects.get(kind=JUDGE_JOB).id, "test"))
    with tenant(project.id):
        judge = GateReport.objects.get(id=report.id).judge
        assert (judge["model"], judge["win_rate"]) == ("judge-large", None)
        assert "judging" in judge["refused"] and "spent" in judge["refused"]
        assert not Comparison.objects.exists(), "a budget is no verdict"


def test_what_a_judge_said_before_its_budget_was_spent_is_shown(project, report, settings):
    settings.JUDGE_URL, settings.JUDGE_MODEL = "http://127.0.0.1:9/v1", "judge-large"
    with tenant(project.id):
        answer_both()
        judge = judge_for(LearningPlan.objects.get())
        Comparison.objects.create(
            problem=Problem.objects.get(), left="editor@2", right="editor@1", judge=judge, by="judge", verdict="left"
        )
        spend_budget()
        enqueue(JUDGE_JOB, project_id=project.id, payload={"report": report.id})
    run(claim(Job.objects.get(kind=JUDGE_JOB).id, "test"))
    with tenant(project.id):
        shown = GateReport.objects.get(id=report.id).judge
        assert (shown["num_pairs"], shown["wins"], shown["errors"]) == (1, 1, 0)
