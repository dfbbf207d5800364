import asyncio
import json

import pytest

from evals.judging.completer import Completion
from evals.judging.pairwise import Judge, PairVerdict
from evals.models import Comparison, JudgeCall, JudgeVersion
from evals.services.judgements import judge_pairs, record_comparison
from evals.services.runs import run_benchmark
from registry.tenancy import tenant

JUDGE = Judge(name="base", model="editor@1")


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
    other = Judge(name="base", model="editor@1", parser_version="2")
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
