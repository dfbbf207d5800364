import time

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from evals import selectors
from evals.judging.completer import CompletionRefused
from evals.models import EvalRun, RunState, Score, ScoreStatus
from evals.services import runs
from evals.services.runs import run_benchmark, score_answers
from registry.errors import InvalidInput, NotFound
from registry.tenancy import tenant


def run(project, completer, **options):
    return run_benchmark(project.id, benchmark="adding@1", checkpoint="editor@3", completer=completer, **options)


def test_every_problem_is_asked_scored_and_kept(project, benchmark, scripted, right):
    finished = run(project, scripted(right), sampling={"temperature": 0})
    with tenant(project.id):
        assert (finished.state, str(finished)) == (RunState.DONE, "editor@3 on adding@1")
        assert selectors.scores(finished) == {f"add/{n}": 1.0 for n in range(20)}
        kept = Score.objects.get(run=finished, problem__problem_id="add/7")
        assert (kept.output, kept.usage, kept.cost_usd) == (" a + 7", {"input": 3, "output": 2}, None)
        assert kept.sandbox_level


def test_a_finished_run_is_found_again_and_asks_nothing(project, benchmark, scripted, right):
    first, second = scripted(right), scripted(right)
    assert run(project, first) == run(project, second)
    assert (len(first.asked), len(second.asked)) == (20, 0)


def test_other_sampling_or_another_checkpoint_is_another_run(project, benchmark, scripted, right):
    completer = scripted(right)
    runs = {
        run(project, completer).pk,
        run(project, completer, sampling={"temperature": 1}).pk,
        run_benchmark(project.id, benchmark="adding@1", checkpoint="editor@4", completer=completer).pk,
    }
    assert len(runs) == 3


class Killed(BaseException):
    pass


def test_an_interrupted_run_goes_on_where_it_was(project, benchmark, scripted, right):
    def die_after_the_first_batch(done, total):
        raise Killed

    with pytest.raises(Killed):
        run(project, scripted(right), on_progress=die_after_the_first_batch)
    again = scripted(right)
    finished = run(project, again)
    assert len(again.asked) == 4  # 16 of 20 were stored
    with tenant(project.id):
        assert (finished.state, EvalRun.objects.count(), Score.objects.count()) == (RunState.DONE, 1, 20)


def test_problems_are_read_a_part_at_a_time(project, benchmark, scripted, right, monkeypatch):
    monkeypatch.setattr(runs, "PROBLEMS_AT_ONCE", 8)
    completer = scripted(right)
    with CaptureQueriesContext(connection) as asked:
        finished = run(project, completer)
    assert finished.state == RunState.DONE and len(completer.asked) == 20
    assert completer.most_at_once == 8
    assert sum('"evals_problem"."problem_id" IN' in query["sql"] for query in asked) == 3


def test_a_deadline_ends_the_parts_too(project, benchmark, scripted, right, monkeypatch):
    monkeypatch.setattr(runs, "PROBLEMS_AT_ONCE", 8)
    completer = scripted(right, hangs_after=5)
    assert run(project, completer, deadline=time.monotonic() + 0.3).state == RunState.RUNNING
    assert len(completer.asked) <= 8, "no part is begun after it"


def test_a_deadline_leaves_the_run_running(project, benchmark, scripted, right):
    late = run(project, scripted(right, hangs_after=5), deadline=time.monotonic() + 3)
    with tenant(project.id):
        assert (late.state, Score.objects.count()) == (RunState.RUNNING, 5)
    assert run(project, scripted(right)).state == RunState.DONE


def test_an_answer_that_could_not_be_had_is_unscored_and_never_a_zero(project, benchmark, scripted, right, failure):
    flaky = scripted(lambda prompt: failure if "add_7(" in prompt else right(prompt))
    finished = run(project, flaky)
    with tenant(project.id):
        assert selectors.scores(finished)["add/7"] is None
        summary = selectors.summary(finished)
        assert (summary.num_scored, summary.num_errors, summary.mean) == (19, 1, 1.0)
        assert Score.objects.get(status=ScoreStatus.ERROR).explanation == "status 503, 4 times"


def test_unscored_answers_are_asked_again_only_on_request(project, benchmark, scripted, right, failure):
    run(project, scripted(lambda prompt: failure if "add_7(" in prompt else right(prompt)))
    again = scripted(right)
    run(project, again)
    assert again.asked == []
    repaired = run(project, again, retry_unscored=True)
    assert len(again.asked) == 1
    with tenant(project.id):
        assert selectors.scores(repaired)["add/7"] == 1.0
        assert Score.objects.count() == 20


def test_a_refused_request_is_an_infra_failure_that_is_not_asked_again(project, benchmark, scripted, right):
    refusal = CompletionRefused("status 400: too long")
    finished = run(project, scripted(lambda prompt: refusal if "add_7(" in prompt else right(prompt)))
    with tenant(project.id):
        summary = selectors.summary(finished)
        assert (summary.num_scored, summary.num_errors, summary.num_infra, summary.num_refused) == (19, 0, 1, 1)
        assert selectors.refusals(finished) == {"status 400: too long": 1}
    again = scripted(right)
    run(project, again, retry_unscored=True)
    assert again.asked == []


def test_progress_counts_up_to_all(project, benchmark, scripted, right):
    seen = []
    run(project, scripted(right), on_progress=lambda done, total: seen.append((done, total)))
    assert seen == [(16, 20), (20, 20)]


def test_an_answer_that_is_no_proper_text_can_be_stored(project, benchmark, scripted):
    finished = run(project, scripted(lambda prompt: " 0 # \x00\ud800"))
    with tenant(project.id):
        assert selectors.scores(finished)["add/1"] == 0.0
        assert Score.objects.get(problem__problem_id="add/1").output == " 0 # ␀?"


def test_given_answers_are_scored_like_asked_ones(project, benchmark):
    finished = score_answers(
        project.id, benchmark="adding@1", model="by hand", answered={"add/1": " a + 1", "add/2": " a"}
    )
    with tenant(project.id):
        assert selectors.scores(finished) == {"add/1": 1.0, "add/2": 0.0}
        assert (finished.state, str(finished)) == (RunState.RUNNING, "by hand on adding@1")


def test_given_answers_must_be_to_known_problems(project, benchmark):
    with pytest.raises(InvalidInput, match="adding@1 has no problem nope"):
        score_answers(project.id, benchmark="adding@1", model="by hand", answered={"nope": "1"})


def test_who_is_measured_must_be_said_exactly_once(project, benchmark, scripted):
    with pytest.raises(InvalidInput):
        run_benchmark(project.id, benchmark="adding@1", completer=scripted({}))


def test_an_unknown_benchmark_or_that_of_another_project_is_not_found(project, other_project, benchmark, scripted):
    for project_id, name in ((project.id, "adding@2"), (other_project.id, "adding@1")):
        with pytest.raises(NotFound):
            run_benchmark(project_id, benchmark=name, checkpoint="editor@3", completer=scripted({}))


def test_two_runs_are_compared_problem_by_problem(project, benchmark, scripted, right):
    better = run(project, scripted(right))
    worse = run_benchmark(
        project.id, benchmark="adding@1", checkpoint="editor@2",
        completer=scripted(lambda prompt: " a" if "add_7(" in prompt else right(prompt)),
    )  # fmt: skip
    with tenant(project.id):
        difference = selectors.compare_runs(better, worse)
    # One of 20 problems differs; three families of 7, 7 and 6 problems.
    assert (difference.mean, difference.better, difference.num_clusters) == (0.05, 1, 3)
