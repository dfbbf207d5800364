"""What is measured for a candidate, what the gate is told, and what is done with its word."""

import pytest

from evals.scorers.scorer import ProblemSpec
from evals.services.benchmarks import create_benchmark
from evals.services.runs import score_answers
from jobs.models import Job
from registry.models import AuditEvent, Checkpoint, Deployment
from registry.tenancy import tenant
from rl_online.gate.decision import Kind, decide
from rl_online.gate.evidence import Arm, Evidence, Half
from rl_online.gate.limits import Limits
from rl_online.models import GateReport, UpdateRun
from rl_online.services import plans, promotion, proving

pytestmark = pytest.mark.django_db


@pytest.fixture
def candidate(judged, sealed, trained) -> Checkpoint:
    judged("accept"), judged("reject")
    return trained(sealed())


def decision(kind: Kind, *, rounds: int = 1):
    """A decision of that kind, from 40 problems; for extend, half of them without a score."""
    keys = [f"p{number}" for number in range(40)]
    new = {key: 0.0 if kind is Kind.HOLD else 1.0 for key in keys}
    if kind is Kind.EXTEND:
        new |= dict.fromkeys(keys[:20])
    arm = Arm(role="serving", checkpoint="editor@1", scores=dict.fromkeys(keys, 1.0))
    half = Half(name="all", families={key: key for key in keys}, candidate=new, baselines=(arm,))
    found = decide(Evidence(candidate="editor@2", halves=(half,), rounds=rounds), Limits())
    assert found.kind is kind
    return found


def run_of(candidate: Checkpoint) -> UpdateRun:
    return UpdateRun.objects.get(checkpoint=candidate)


def test_a_pass_is_promoted_when_the_plan_says_so(project, candidate):
    with tenant(project.id):
        report = proving.carry_out(run_of(candidate).id, decision(Kind.PROMOTE))
        run = run_of(candidate)
        assert (report.decision, run.state) == ("promote", "promoted")
        assert Deployment.objects.get().checkpoint == candidate
        assert AuditEvent.objects.get(verb="promote").actor == "strop"
    assert run.finished_at is not None and {"prove", "total", "train", "seal", "wait"} <= set(run.timings)


def test_a_pass_waits_for_a_person_when_the_plan_says_so(project, policy, candidate):
    with tenant(project.id):
        plans.change_plan(policy, actor="test", promotion="by_person")
        proving.carry_out(run_of(candidate).id, decision(Kind.PROMOTE))
        assert run_of(candidate).state == "waiting"
        assert Deployment.objects.get().checkpoint.version == 1
        promotion.promote(candidate, actor="ada")  # no reason is needed: the gate said so
        assert run_of(candidate).state == "promoted"


def test_a_hold_leaves_a_candidate_that_is_nobodys_parent(project, candidate):
    with tenant(project.id):
        report = proving.carry_out(run_of(candidate).id, decision(Kind.HOLD))
        candidate.refresh_from_db()
        assert (report.decision, run_of(candidate).state, candidate.state) == ("hold", "held", "candidate")
        assert "inferiority is not ruled out" in report.reasons[0]
        assert Deployment.objects.get().checkpoint.version == 1


def test_missing_scores_are_asked_for_again_and_the_rounds_are_counted(project, candidate):
    with tenant(project.id):
        run = run_of(candidate)
        proving.carry_out(run.id, decision(Kind.EXTEND))
        assert run_of(candidate).state == "proving"
        assert Job.objects.filter(kind="rl_online.prove", state="queued").count() == 2
        assert proving.proof_of(run.id).rounds == 2


def test_a_pass_for_a_line_that_has_moved_is_held(project, policy, promoted, judged, sealed, trained):
    judged("accept"), judged("reject")
    promoted()
    judged("accept", version=2), judged("reject", version=2)
    candidate = trained(sealed())
    with tenant(project.id):
        promotion.roll_back(policy, actor="ada", reason="worse")
        report = proving.carry_out(run_of(candidate).id, decision(Kind.PROMOTE))
        assert (report.decision, run_of(candidate).state) == ("hold", "held")
        assert report.reasons[0] == "its parent editor@2 is no longer serving; editor@1 is"
        assert Deployment.objects.get().checkpoint.version == 1


def test_a_decision_is_carried_out_once(project, candidate):
    with tenant(project.id):
        run = run_of(candidate)
        assert proving.carry_out(run.id, decision(Kind.PROMOTE)) is not None
        assert proving.carry_out(run.id, decision(Kind.HOLD)) is None
        assert GateReport.objects.count() == 1


def test_without_a_benchmark_nothing_is_proved_and_it_says_so(project, candidate):
    with tenant(project.id):
        proof = proving.proof_of(run_of(candidate).id)
        refusal = proving._refusal(proof)
        proving.carry_out(proof.run.id, proving.refused(proof, refusal))
        report = GateReport.objects.get()
    assert report.reasons == ["no gate benchmark is set, so nothing is proved; a person may promote it with a reason"]
    assert report.evidence["findings"] == []


def test_a_canary_gets_its_share_and_waits(project, policy, candidate):
    keys = [f"p{number}" for number in range(40)]
    scores = dict.fromkeys(keys, 1.0)
    half = Half(
        name="all",
        families={key: key for key in keys},
        candidate=scores,
        baselines=(Arm(role="serving", checkpoint="editor@1", scores=scores),),
    )
    found = decide(Evidence(candidate="editor@2", halves=(half,)), Limits(canary_share=0.2))
    with tenant(project.id):
        plans.change_plan(policy, actor="test", gate_limits={"canary_share": 0.2})
        proving.carry_out(run_of(candidate).id, found)
        deployment = Deployment.objects.get()
        candidate.refresh_from_db()
        assert (deployment.canary, deployment.canary_share, deployment.checkpoint.version) == (candidate, 0.2, 1)
        assert (candidate.state, run_of(candidate).state) == ("canary", "waiting")
        promotion.promote(candidate, actor="ada")
        assert Deployment.objects.get().canary is None


class TestEvidence:
    @pytest.fixture
    def proof(self, project, policy, candidate):
        problems = [
            ProblemSpec(
                id=f"{half}/{number}",
                prompt=f"def f(x):\n    return x + {number} *",
                tests={"function": "f", "cases": [{"args": [1], "expected": 1 + number}]},
                slices={"half": half, "family": f"f{number % 2}"},
            )
            for half in ("seen", "unseen")
            for number in range(3)
        ]
        create_benchmark(project.id, "gate", problems, version=1)
        with tenant(project.id):
            plans.change_plan(policy, actor="test", gate_benchmark="gate@1")
            return proving.proof_of(run_of(candidate).id)

    def answer(self, project, checkpoint: Checkpoint, right: set[str]):
        keys = [f"{half}/{number}" for half in ("seen", "unseen") for number in range(3)]
        given = {key: " 1" if key in right else " (" for key in keys}
        return score_answers(project.id, benchmark="gate@1", answered=given, checkpoint=str(checkpoint))

    def test_the_candidate_meets_each_baseline_on_each_half(self, project, proof):
        runs = {
            "editor@2": self.answer(project, proof.candidate, {"seen/0", "unseen/1"}),
            "editor@1": self.answer(project, proof.arms["serving"], {"seen/0", "seen/1"}),
        }
        with tenant(project.id):
            evidence = proving.evidence_of(proof, {"gate@1": runs})
        seen, unseen = evidence.halves
        assert (seen.name, unseen.name) == ("seen", "unseen")
        assert seen.candidate == {"seen/0": 1.0, "seen/1": 0.0, "seen/2": 0.0}
        assert seen.baselines[0].scores == {"seen/0": 1.0, "seen/1": 1.0, "seen/2": 0.0}
        assert unseen.candidate["unseen/1"] == 1.0
        assert seen.families == {"seen/0": "f0", "seen/1": "f1", "seen/2": "f0"}
        # the serving checkpoint is the first one: one arm says both
        assert [arm.role for arm in seen.baselines] == ["serving"]

    def test_only_what_has_not_answered_has_to_be_held(self, project, proof):
        with tenant(project.id):
            assert proving._not_held(proof) == [proof.candidate, proof.arms["serving"]]


def test_after_a_promotion_the_first_checkpoint_is_a_baseline_of_its_own(project, promoted, judged, sealed, trained):
    judged("accept"), judged("reject")
    promoted()
    judged("accept", version=2), judged("reject", version=2)
    candidate = trained(sealed())
    with tenant(project.id):
        proof = proving.proof_of(run_of(candidate).id)
        assert {role: arm.version for role, arm in proof.arms.items()} == {"serving": 2, "first": 1}
