import asyncio
import json

import pytest

from evals.judging.completer import Completion
from evals.judging.judge import Judge
from evals.judging.pairwise import PairVerdict
from evals.models import Comparison, JudgeCall, JudgeVersion
from evals.services.judgements import judge_pairs, record_comparison
from evals.services.judges import JudgesItself, change_duty
from evals.services.runs import run_benchmark
from registry.tenancy import tenant

JUDGE = Judge(name="judge", model="judge-1")
ITSELF = Judge(name="base", model="editor@1")


class ScriptedJudge:
    """Prefers what `prefers(task, answer)` says is good; remembers what it was shown."""

    def __init__(self, prefers, *, delay_s=0.0):
        self.prefers, self.delay_s, self.tasks = prefers, delay_s, []

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def complete(self, messages, sampling):
        data = json.loads(messages[1]["content"])
        self.tasks.append(data["task"])
        await asyncio.sleep(self.delay_s)
        good = [self.prefers(data["task"], data[key]) for key in ("answer_A", "answer_B")]
        verdict = "tie" if good[0] == good[1] else "A" if good[0] else "B"
        return Completion(text=json.dumps({"rationale": "", "verdict": verdict}))


@pytest.fixture
def runs(project, benchmark, scripted, right):
    """editor@3 answers everything; editor@2 gets add/1 to add/4 wrong, and words add/5 differently."""

    def older(prompt):
        if any(f"add_{n}(" in prompt for n in (1, 2, 3, 4)):
            return " a"
        return right(prompt) + (" + 0" if "add_5(" in prompt else "")

    def run(checkpoint, answers):
        return run_benchmark(project.id, benchmark="adding@1", checkpoint=checkpoint, completer=scripted(answers))

    return run("editor@3", right), run("editor@2", older)


def correct(task, answer):
    return "+" in answer


def judged(project, runs, completer, **options):
    left, right = runs
    return judge_pairs(project.id, left_run=left, right_run=right, completer=completer, judge=JUDGE, **options)


def test_pairs_that_differ_are_judged_and_every_call_is_kept(project, runs):
    report = judged(project, runs, ScriptedJudge(correct))
    assert (report["wins"], report["ties"], report["losses"], report["num_pairs"]) == (4, 1, 0, 5)
    assert (report["agreement"], report["num_compared"], report["has_vote"]) == (1.0, 5, False)
    with tenant(project.id):
        assert JudgeCall.objects.count() == 10
        assert set(JudgeCall.objects.filter(comparison__verdict="left").values_list("order", "verdict")) == {
            ("lr", "left"),
            ("rl", "left"),
        }


def test_pairs_on_which_the_tests_differ_come_first(project, runs):
    judge = ScriptedJudge(correct)
    judged(project, runs, judge, limit=4)
    assert len(judge.tasks) == 8
    assert not any("add_5(" in task for task in judge.tasks)


def test_judging_again_goes_on_where_it_was(project, runs):
    judged(project, runs, ScriptedJudge(correct), limit=2)
    again = ScriptedJudge(correct)
    assert judged(project, runs, again)["num_pairs"] == 5
    assert len(again.tasks) == 6
    assert judged(project, runs, ScriptedJudge(lambda *_: 1 / 0))["num_pairs"] == 5


def test_another_judge_version_judges_for_itself(project, runs):
    judged(project, runs, ScriptedJudge(correct))
    left, right = runs
    other = Judge(name="judge", model="judge-1", parser_version="2")
    report = judge_pairs(
        project.id, left_run=left, right_run=right, completer=ScriptedJudge(lambda *_: True), judge=other
    )
    assert (report["num_pairs"], report["ties"]) == (5, 5)
    with tenant(project.id):
        assert JudgeVersion.objects.count() == 2


def test_invalid_judgements_are_counted_and_are_no_ties(project, runs, scripted):
    report = judged(project, runs, scripted(lambda messages: "Hmm."))
    assert (report["invalid"], report["ties"], report["win_rate"], report["num_compared"]) == (5, 0, None, 0)


def test_a_judge_that_cannot_be_reached_is_an_error_and_no_tie(project, runs, scripted, failure):
    report = judged(project, runs, scripted(lambda messages: failure))
    assert (report["errors"], report["ties"]) == (5, 0)
    with tenant(project.id):
        assert JudgeCall.objects.first().error == "status 503, 4 times"


def test_a_slow_judge_is_left_behind(project, runs):
    report = judged(project, runs, ScriptedJudge(correct, delay_s=30), timeout_s=0.2)
    assert report["num_pairs"] == 0


def test_a_person_may_compare_too(project, runs):
    with tenant(project.id):
        record_comparison(problem=None, left="a", right="b", verdict=PairVerdict.LEFT, by="person")
        assert str(Comparison.objects.get()) == "a vs b: left"


def test_the_report_is_json(project, runs):
    report = judged(project, runs, ScriptedJudge(correct))
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_a_policy_may_not_judge_itself_unless_somebody_allows_it_and_then_it_has_no_vote(project, runs):
    left, right = runs
    completer = ScriptedJudge(correct)
    asked = {"left_run": left, "right_run": right, "completer": completer, "judge": ITSELF}
    with pytest.raises(JudgesItself, match="editor@1 would judge answers of its own policy"):
        judge_pairs(project.id, **asked)
    assert completer.tasks == []
    with tenant(project.id):
        version, _ = JudgeVersion.objects.get_or_create(
            name="base", model="editor@1", prompt_digest=ITSELF.prompt_digest, parser_version=ITSELF.parser_version,
            sampling=dict(ITSELF.sampling),
        )  # fmt: skip
        change_duty(version, actor="ada", may_judge_itself=True)
    report = judge_pairs(project.id, **asked)
    assert (report["num_pairs"], report["has_vote"]) == (5, False)
    assert report["sentence"].endswith("judges its own policy: no vote")


def test_the_same_two_answers_are_asked_once_whoever_gave_them(project, runs, scripted, right):
    """editor@4 answers word for word as editor@3 did."""
    judged(project, runs, ScriptedJudge(correct))
    twin = run_benchmark(project.id, benchmark="adding@1", checkpoint="editor@4", completer=scripted(right))
    again = ScriptedJudge(correct)
    report = judged(project, (twin, runs[1]), again)
    assert (report["wins"], report["num_pairs"], again.tasks) == (4, 5, [])
    with tenant(project.id):
        cached = JudgeCall.objects.filter(comparison__left="editor@4")
        assert set(cached.values_list("is_cached", "cost_usd")) == {(True, 0)} and cached.count() == 10
        assert set(cached.filter(comparison__verdict="left").values_list("verdict", flat=True)) == {"left"}


def test_nonsense_and_errors_are_asked_again(project, runs, scripted, right, failure):
    judged(project, runs, scripted(lambda messages: "Hmm."))
    twin = run_benchmark(project.id, benchmark="adding@1", checkpoint="editor@4", completer=scripted(right))
    again = ScriptedJudge(correct)
    judged(project, (twin, runs[1]), again)
    assert len(again.tasks) == 10


def test_20_what_could_not_be_had_is_counted_beside_the_rate_and_can_be_asked_again(project, runs, failure):
    """Three of five preferences are null: n 2, coverage 40 %."""

    class Lossy(ScriptedJudge):
        async def complete(self, messages, sampling):
            data = json.loads(messages[1]["content"])
            if any(f"add_{n}(" in data["task"] for n in (1, 2, 3)):
                raise failure
            return await super().complete(messages, sampling)

    report = judged(project, runs, Lossy(correct))
    decided = report["wins"] + report["ties"] + report["losses"]
    assert (decided, report["errors"], report["num_pairs"]) == (2, 3, 5)
    with tenant(project.id):
        assert Comparison.objects.filter(verdict="error").count() == 3
