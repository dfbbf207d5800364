"""A candidate proved on several suites and by a judge's vote: from kept answers to a report, by the worker's job."""

import pytest

from evals.importers.record import Result, Run, Source
from evals.judging.completer import CompletionFailed
from evals.judging.pairwise import PairVerdict
from evals.judging.scripted import SCRIPTS
from evals.models import CanaryRun, Comparison, EvalRun, JudgeCall, Problem, Score
from evals.scorers.scorer import ProblemSpec
from evals.services.benchmarks import create_benchmark
from evals.services.importing import import_run
from evals.services.judgements import record_comparison
from evals.services.judges import SCRIPTED, change_duty, create_judge
from jobs.models import Job
from jobs.services import NotYet, claim, run
from registry.errors import InvalidInput
from registry.models import Checkpoint
from registry.tenancy import tenant
from rl_online.models import GateReport, LearningPlan
from rl_online.services import answers, plans, voting
from rl_online.services.judging import JUDGE_JOB
from rl_online.services.reopening import reopen
from rl_online.services.runs import PROVE_JOB

pytestmark = pytest.mark.django_db

CODE = {"max_tokens": 512}
SIZE = 40


@pytest.fixture
def candidate(judged, sealed, trained) -> Checkpoint:
    judged("accept"), judged("reject")
    return trained(sealed())


@pytest.fixture
def suites(project, policy):
    """`gate@1`, the plan's benchmark, and `code@1` with its own sampling."""
    for name in ("gate", "code"):
        problems = [
            ProblemSpec(
                id=f"p{number}", prompt=f"# {number}", tests={"function": "f", "cases": []},
                slices={"family": ("add", "sort")[number % 2]},
            )
            for number in range(SIZE)
        ]  # fmt: skip
        create_benchmark(project.id, name, problems, version=1)
    with tenant(project.id):
        plans.change_plan(
            policy, actor="test", gate_benchmark="gate@1", judged_pairs=0,
            gate_suites=[{"benchmark": "code@1", "sampling": CODE}],
        )  # fmt: skip


def keep(policy, suite, checkpoint, *, right, text=str, **columns) -> EvalRun:
    """A finished run as the gate leaves it; `right` are the numbers of solved problems. Inside a tenant."""
    plan = LearningPlan.objects.get(policy=policy)
    found = next((one for one in plans.suites_of(plan) if one.benchmark == suite), None)
    of = {"scorer": "unit_tests", "state": "done", "sampling": dict(found.sampling) if found else {}}
    problems = list(Problem.objects.filter(benchmark__name=suite.partition("@")[0]).order_by("id"))
    made = EvalRun.objects.create(benchmark=problems[0].benchmark, checkpoint=checkpoint, **of | columns)
    Score.objects.bulk_create(
        Score(
            run=made, problem=problem, scorer=made.scorer, status="scored", value=float(number in right),
            output=text(number), usage={"output": 10},
        )
        for number, problem in enumerate(problems)
    )  # fmt: skip
    return made


def prove(project) -> GateReport:
    """The newest report, after the job has run as often as it wants."""
    for _ in range(5):
        job = Job.objects.filter(kind=PROVE_JOB, state="queued").order_by("-id").first()
        if job is None:
            break
        run(claim(job.id, "test"))
    with tenant(project.id):
        return GateReport.objects.order_by("-id").first()


HALF = set(range(0, SIZE, 2))


def test_a_candidate_is_proved_on_each_suite_and_the_report_names_every_run(project, policy, candidate, suites):
    with tenant(project.id):
        plans.change_plan(policy, actor="test", gate_limits={"margins": {"code: family=add": 0.5}, "min_pairs": 10})
        ids = {
            (suite, name): str(keep(policy, suite, name, right=HALF).id)
            for suite in ("gate@1", "code@1")
            for name in ("editor@1", "editor@2")
        }
    report = prove(project)
    assert report.decision == "promote", report.reasons
    assert [(found["suite"], found["half"], found["margin"]) for found in report.evidence["findings"]] == [
        ("gate@1", "all problems", 0.1), ("code@1", "all problems", 0.1), ("code@1", "family=add", 0.5),
    ]  # fmt: skip
    assert {
        (suite["benchmark"], name): key for suite in report.evidence["suites"] for name, key in suite["runs"].items()
    } == ids
    assert [suite["sampling"]["max_tokens"] for suite in report.evidence["suites"]] == [256, 512]
    assert report.evidence["benchmark"] == "gate@1"
    assert next(guard["n"] for guard in report.evidence["guards"] if guard["name"] == "output tokens") == 2 * SIZE


def test_a_loss_on_the_second_suite_alone_holds(project, policy, candidate, suites):
    with tenant(project.id):
        for suite, right in (("gate@1", HALF), ("code@1", {0, 2})):
            keep(policy, suite, "editor@1", right=HALF)
            keep(policy, suite, "editor@2", right=right)
    report = prove(project)
    assert report.decision == "hold"
    assert [reason.split(":")[0] for reason in report.reasons] == ["code@1"]


def test_a_run_somebody_asked_for_counts_only_when_it_asked_everything_in_the_same_way(project, policy, suites):
    with tenant(project.id):
        gate, code = plans.suites_of(LearningPlan.objects.get(policy=policy))
        keep(policy, "code@1", "editor@1", right=HALF, asked_by="ada", sampling={"temperature": 1})
        keep(policy, "code@1", "editor@1", right=HALF, asked_by="ada", num_problems=10)
        assert answers.run_of(code, "editor@1") is None
        asked = keep(policy, "code@1", "editor@1", right=HALF, asked_by="ada")
        assert answers.run_of(code, "editor@1") == asked and answers.run_of(gate, "editor@1") is None
        own = keep(policy, "code@1", "editor@1", right=HALF)
        assert answers.run_of(code, "editor@1") == own


def bring_in(project, checkpoint) -> None:
    results = [
        Result(problem=f"p{number}", scorer="exact_match", status="scored", score=float(number in HALF))
        for number in range(SIZE)
    ]
    source = Source(format="harness", sha256="a" * 64)
    import_run(project.id, Run(benchmark="law", source=source, results=results, checkpoint=checkpoint, run_id="r1"))


def test_a_suite_from_elsewhere_is_not_asked_but_read_once_both_have_a_run(project, policy, candidate, suites):
    bring_in(project, "editor@1")
    with tenant(project.id):
        plans.change_plan(policy, actor="test", gate_suites=[{"benchmark": "harness:law@1"}])
        keep(policy, "gate@1", "editor@1", right=HALF), keep(policy, "gate@1", "editor@2", right=HALF)
    held = prove(project)
    assert held.reasons == [
        "harness:law@1 came in from elsewhere and is not asked here: it has no finished run of editor@2; "
        "bring one in, then reopen the gate"
    ]
    bring_in(project, "editor@2")
    with tenant(project.id):
        reopen(held, actor="ada", reason="it is there now")
    report = prove(project)
    assert report.decision == "promote", report.reasons
    assert [(one["origin"], one["scorer"]) for one in report.evidence["suites"]] == [
        ("", "unit_tests"), ("harness", "exact_match"),
    ]  # fmt: skip


def test_a_plan_refuses_suites_and_judges_that_cannot_be(project, policy, suites):
    wrong = [
        ({"gate_suites": [{"benchmark": "gate@1"}]}, "gate_suites"),
        ({"gate_suites": "code@1"}, "gate_suites"),
        ({"gate_benchmark": None}, "gate_benchmark"),
        ({"gate_judge_id": 999_999}, "gate_judge_id"),
        ({"judged_pairs": -1}, "judged_pairs"),
        ({"gate_limits": {"judged": 0.4}}, "judged_pairs"),  # none are to be judged
    ]
    with tenant(project.id):
        for changes, field in wrong:
            with pytest.raises(InvalidInput) as refused:
                plans.change_plan(policy, actor="test", **changes)
            assert refused.value.field == field


class TestVote:
    """A judge that prefers the longer answer, which is the right one here: it agrees with the tests."""

    @pytest.fixture
    def judge(self, project, policy, candidate, suites):
        with tenant(project.id):
            judge = create_judge(
                name="strict", model="scripted/longest", actor="ada", protocol="pairwise", endpoint=SCRIPTED
            )
            plans.change_plan(
                policy, actor="test", gate_judge_id=judge.pk, judged_pairs=2 * SIZE, gate_limits={"judged": 0.35}
            )
            for suite in ("gate@1", "code@1"):
                keep(policy, suite, "editor@1", right=HALF, text=lambda number: "x" * (5 if number in HALF else 2))
                others = set(range(SIZE)) - HALF
                keep(policy, suite, "editor@2", right=others, text=lambda number: "y" * (2 if number in HALF else 5))
            return judge

    def pass_canaries(self, judge) -> None:
        CanaryRun.objects.create(judge=judge, state="done", standing="passed", requested_by="ada")

    def test_without_canaries_it_judges_in_both_orders_and_its_word_decides_nothing(self, project, policy, judge):
        with tenant(project.id):
            plans.change_plan(policy, actor="test", gate_limits={"judged": 0.99, "margin": 1.0})
        report = prove(project)
        assert report.decision == "promote"
        assert report.reasons[-1].startswith("judge strict (scripted/longest) has no vote, its canaries were not run")
        assert (report.judge["num_pairs"], report.judge["win_rate"]) == (2 * SIZE, 0.5)
        assert report.evidence["vote"]["has_vote"] is False
        with tenant(project.id):
            assert Comparison.objects.first().calls.count() == 2
        assert not Job.objects.filter(kind=JUDGE_JOB).exists()

    def test_healthy_it_holds_what_the_tests_let_pass_and_promotes_what_it_does_not_mind(self, project, policy, judge):
        with tenant(project.id):
            self.pass_canaries(judge)
            plans.change_plan(policy, actor="test", gate_limits={"judged": 0.5, "margin": 1.0})
        held = prove(project)
        # 40 of 80: Wilson [39.3, 60.7]
        assert (held.decision, held.reasons) == (
            "hold",
            [
                "judge strict (scripted/longest): win rate 50.0 % [39.3 %, 60.7 %] on 80 pairs in both orders, "
                "lower end not above 50.0 %"
            ],
        )
        with tenant(project.id):
            plans.change_plan(policy, actor="test", gate_limits={"judged": 0.35, "margin": 1.0})
            reopen(held, actor="ada", reason="the limit was too high")
            num = Comparison.objects.count()
        report = prove(project)
        assert report.decision == "promote" and report.evidence["vote"]["has_vote"] is True
        with tenant(project.id):
            assert Comparison.objects.count() == num, "what is judged is not asked again"
            assert GateReport.objects.get(pk=held.pk).reasons == held.reasons

    def test_what_could_not_be_asked_is_asked_again_and_a_spent_budget_or_silence_is_no_vote(
        self, project, policy, judge, monkeypatch
    ):
        def forget(report) -> None:
            """As if all but 10 of the pairs had got no reply, and the candidate had been held for it."""
            some = list(Comparison.objects.order_by("id").values_list("pk", flat=True)[10:])
            JudgeCall.objects.filter(comparison__in=some).delete()
            Comparison.objects.filter(pk__in=some).update(verdict="error")
            reopen(report, actor="ada", reason="the judge was away")

        def is_away(shown):
            raise CompletionFailed("status 503, 4 times")

        with tenant(project.id):
            self.pass_canaries(judge)
            plans.change_plan(policy, actor="test", gate_limits={"judged": 0.5, "margin": 1.0})
        held = prove(project)
        with tenant(project.id):
            forget(held)
        held = prove(project)
        assert (held.decision, held.judge["errors"], held.evidence["vote"]["num_decided"]) == ("hold", 0, 2 * SIZE)
        with tenant(project.id):
            forget(held)
            plan = LearningPlan.objects.get(policy=policy)
        job = claim(Job.objects.filter(kind=PROVE_JOB, state="queued").latest("id").id, "test")
        names = {"candidate": "editor@2", "serving": "editor@1"}
        with monkeypatch.context() as silent:
            silent.setitem(SCRIPTS, "longest", is_away)
            with pytest.raises(NotYet, match="20 of 80"):  # the other suite asks the same: that is known
                voting.hear(job, plan, **names, is_patient=True)
            with pytest.raises(NotYet, match="no reply"):
                voting.hear(job, plan, **names, is_patient=True)
            assert voting.hear(job, plan, **names, is_patient=False).wins.no_vote == voting.NO_REPLY
        with tenant(project.id):
            change_duty(judge, actor="ada", daily_calls=20)
        run(job)
        with tenant(project.id):
            report = GateReport.objects.latest("id")
        assert report.decision == "promote", report.reasons
        assert "has no vote, the day's budget of 20 calls is spent: win rate" in report.reasons[-1]
        assert report.evidence["vote"]["num_decided"] == 20

    def test_peoples_votes_give_the_corrected_rate_beside_the_raw_one(self, project, policy, judge):
        with tenant(project.id):
            self.pass_canaries(judge)
            for problem in Problem.objects.filter(benchmark__name="gate").order_by("id")[:20]:
                number = int(problem.problem_id.removeprefix("p"))
                verdict = PairVerdict.RIGHT if number in HALF else PairVerdict.LEFT
                record_comparison(problem=problem, left="editor@2", right="editor@1", verdict=verdict, by="person")
        report = prove(project)
        corrected = report.judge["corrected"]
        assert (corrected["num_labelled"], corrected["num_unlabelled"]) == (20, 2 * SIZE - 20)
        assert corrected["estimate"]["value"] == pytest.approx(0.5) and report.judge["win_rate"] == 0.5

    def test_a_policy_that_would_judge_itself_is_not_asked_and_has_no_vote(self, project, policy, judge):
        with tenant(project.id):
            plans.change_plan(policy, actor="test", gate_judge_id=None, gate_limits={"judged": 0.4, "margin": 1.0})
        report = prove(project)
        assert report.decision == "promote"
        assert "has no vote, a policy may not judge itself: none of 0 pairs is decided" in report.reasons[-1]
        with tenant(project.id):
            assert not Comparison.objects.exists()
