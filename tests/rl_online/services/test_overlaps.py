"""Problems that stand in sealed batches are found, whichever was there first, and stay found when the text is gone."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from evals.models import Problem
from evals.scorers.scorer import ProblemSpec
from evals.services.benchmarks import create_benchmark
from jobs import services as jobs
from jobs.models import Job
from registry.tenancy import tenant
from rl_online.models import BatchSample, Overlap, OverlapCheck, SampleHashes
from rl_online.services import overlaps

pytestmark = pytest.mark.django_db


def question(topic: str) -> str:
    """22 words where the topic is one."""
    return (
        f"Write a function that takes a list of {topic} and gives back the longest run of equal ones at its start now"
    )


def own(n: int) -> str:
    return " ".join(f"{letter}{n}" for letter in "abcdefghijklm")


def look() -> None:
    """As workers do: every overlap job that waits."""
    for job in Job.objects.filter(kind=overlaps.OVERLAP_JOB, state="queued").order_by("id"):
        jobs.run(jobs.claim(job.pk, "worker"))
    assert not Job.objects.filter(kind=overlaps.OVERLAP_JOB).exclude(state="done").exists()


def make(project, *prompts: str, name: str = "product"):
    specs = [ProblemSpec(id=f"p{n}", prompt=prompt) for n, prompt in enumerate(prompts)]
    return create_benchmark(project.id, name, specs)


@pytest.fixture
def learnt(project, judged, sealed):
    """A sealed batch: one turn asked about numbers, four about something else."""
    judged("accept", id="seen", prompt=question("numbers"))
    for n in range(4):
        judged("accept", id=f"other-{n}", prompt=f"{own(0)} {own(n + 1)}")
    return sealed()


def test_a_problem_that_leaks_into_a_later_batch_is_marked_with_the_turn(project, judged, sealed, learnt):
    benchmark = make(
        project,
        question("numbers").upper(),  # the same words
        question("numbers") + " and say how long that run is",  # nearly the same
        question("strings, or of anything else that can be told apart, each as its own kind,"),  # half of the words
        "Sort it",
    )
    with tenant(project.id):
        overlaps.ask_about_benchmark(benchmark)
        before = overlaps.report(benchmark)
    assert (before.num_batches, before.num_checked, before.is_complete) == (1, 0, False)
    look()
    with tenant(project.id):
        found = overlaps.report(benchmark)
        told = {one.problem.problem_id: (round(one.share, 3), one.sample.turn_ref) for one in found.overlaps}
        problem = Problem.objects.get(problem_id="p0")
        assert [one.batch for one in overlaps.overlaps_of(problem)] == [learnt.batch]
        assert overlaps.seen_in_training(Problem.objects.values_list("pk", flat=True)) == {
            one.problem_id for one in found.overlaps
        }
    # p1 has 29 words, 17 13-grams, of which the 22 words of the question hold 10
    assert told == {"p0": (1.0, "seen"), "p1": (0.588, "seen")}
    assert (found.num_checked, found.is_complete, found.num_samples, found.num_without_text) == (1, True, 5, 0)


def test_a_batch_that_is_sealed_later_looks_for_the_problems_there_are(project, judged, sealed, trained, promoted):
    benchmark = make(project, question("dates"))
    judged("accept"), judged("reject")
    promoted()
    look()
    with tenant(project.id):
        assert overlaps.report(benchmark).num_overlapping == 0
    judged("accept", id="leak", prompt=question("dates"), version=2), judged("reject", version=2)
    sealed()
    look()
    with tenant(project.id):
        found = overlaps.report(benchmark)
        assert [one.sample.turn_ref for one in found.overlaps] == ["leak"] and found.num_checked == 2


def test_what_was_hashed_is_found_when_the_text_is_gone_and_what_was_not_is_counted(project, learnt):
    look()  # hashes the batch; there is no benchmark yet
    with tenant(project.id):
        SampleHashes.objects.filter(sample__turn_ref="other-3").delete()
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM feedback_turnpayload WHERE project_id = %s", [project.id])
        benchmark = make(project, question("numbers"))
        overlaps.ask_about_benchmark(benchmark)
    look()
    with tenant(project.id):
        found = overlaps.report(benchmark)
    assert [one.sample.turn_ref for one in found.overlaps] == ["seen"]
    assert (found.num_samples, found.num_without_text, found.is_complete) == (4, 1, True)


def test_wording_that_more_than_ten_conversations_share_is_no_leak(project, policy, judged, sealed):
    from rl_online.services import plans

    with tenant(project.id):
        plans.change_plan(policy, actor="test", every_turns=12, max_turns=20)
    for n in range(11):
        judged("accept", id=f"turn-{n}", prompt=f"{own(0)} {own(n + 1)}")
    sealed()
    benchmark = make(project, own(0), own(3))
    with tenant(project.id):
        overlaps.ask_about_benchmark(benchmark)
    look()
    with tenant(project.id):
        found = overlaps.report(benchmark).overlaps
    assert [(one.problem.problem_id, one.sample.turn_ref, one.share) for one in found] == [("p1", "turn-2", 1.0)]


def test_what_eleven_turns_of_one_session_or_answers_to_one_question_share_is_a_leak(project, policy, judged, sealed):
    from rl_online.services import plans

    with tenant(project.id):
        plans.change_plan(policy, actor="test", every_turns=26, max_turns=30)
    said = [{"role": "user", "content": f"Please: {question('numbers')}"}]
    for n in range(13):  # one or two may be held out
        judged("accept", prompt=None, messages=list(said), session="chat", user="ada")
        said += [{"role": "assistant", "content": own(2 * n)}, {"role": "user", "content": own(2 * n + 1)}]
        judged("accept", prompt=f"Again: {question('dates')}")
    sealed()
    benchmark = make(project, question("numbers"), question("dates"))
    with tenant(project.id):
        overlaps.ask_about_benchmark(benchmark)
    look()
    with tenant(project.id):
        found = overlaps.report(benchmark)
    assert {one.problem.problem_id: one.share for one in found.overlaps} == {"p0": 1.0, "p1": 1.0}


def test_each_part_of_the_problems_is_kept_at_once_and_a_batch_is_sorted_once(project, learnt, monkeypatch):
    monkeypatch.setattr(overlaps, "PROBLEMS_AT_ONCE", 2)
    look()  # hashes the batch
    benchmark = make(project, *(question(topic) for topic in ("dates", "numbers", "words", "keys", "names")))
    with tenant(project.id):
        overlaps.ask_about_benchmark(benchmark)
    with monkeypatch.context() as patched:
        patched.setattr(overlaps, "SLICE_S", 0.0)
        job = Job.objects.get(kind=overlaps.OVERLAP_JOB, state="queued")
        jobs.run(jobs.claim(job.pk, "worker"))
    assert Job.objects.get(pk=job.pk).state == "queued", "its time was up"
    with tenant(project.id):
        assert OverlapCheck.objects.get().num_problems == 2 and Overlap.objects.count() == 1
        assert overlaps.report(benchmark).num_checked == 0
    with CaptureQueriesContext(connection) as asked:
        look()
    with tenant(project.id):
        assert OverlapCheck.objects.get().num_problems == 5 and overlaps.report(benchmark).is_complete
    assert sum("grams" in query["sql"] for query in asked) == 1, "two parts, one reading"


def test_what_another_rule_found_is_looked_for_again_and_replaced(project, learnt, monkeypatch):
    benchmark = make(project, question("numbers"), question("dates"))
    with tenant(project.id):
        overlaps.ask_about_benchmark(benchmark)
    look()
    with tenant(project.id):
        Overlap.objects.create(  # as an earlier rule had it
            problem=Problem.objects.get(problem_id="p1"),
            batch=learnt.batch,
            sample=BatchSample.objects.first(),
            share=0.5,
        )
        OverlapCheck.objects.update(rule="an earlier one")
        report = overlaps.report(benchmark)
        assert (report.num_checked, report.num_outdated, report.is_complete) == (0, 1, False)
    monkeypatch.setattr(overlaps, "_asked", set())
    overlaps.ask_after_another_rule()
    overlaps.ask_after_another_rule()
    assert Job.objects.filter(kind=overlaps.OVERLAP_JOB, state="queued").count() == 1
    look()
    with tenant(project.id):
        report = overlaps.report(benchmark)
        assert [one.problem.problem_id for one in report.overlaps] == ["p0"]
        assert (report.num_checked, report.num_outdated) == (1, 0)


def test_what_is_given_back_takes_its_overlaps_along_and_projects_do_not_mix(project, other_project, learnt):
    mine, theirs = make(project, question("numbers")), make(other_project, question("numbers"))
    for owner, benchmark in ((project, mine), (other_project, theirs)):
        with tenant(owner.id):
            overlaps.ask_about_benchmark(benchmark)
    look()
    with tenant(other_project.id):
        assert overlaps.report(theirs).num_batches == 0 and not Overlap.objects.exists()
    with tenant(project.id):
        assert Overlap.objects.count() == 1
        BatchSample.objects.filter(batch=learnt.batch).delete()  # as when an update fails and gives its turns back
        assert not Overlap.objects.exists() and not SampleHashes.objects.exists()
        assert overlaps.report(mine).num_batches == 0
