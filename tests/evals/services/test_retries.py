"""Judgements that could not be had: shown as blocked with the reason, asked for again on request."""

import threading

import pytest

from evals.judging.pairwise import Judge
from evals.models import Comparison, JudgeCall, JudgeVersion
from evals.services import completers
from evals.services.completers import HttpCompleter
from evals.services.judgements import judge_pairs
from evals.services.retries import RETRY_JOB, request_retry
from evals.services.runs import run_benchmark
from jobs.models import Job
from jobs.services import claim, run
from registry.errors import Conflict, InvalidInput
from registry.models import AuditEvent
from registry.tenancy import tenant
from tests.evals.services.judge_server import JudgeServer, prefers, verdict

pytestmark = pytest.mark.django_db


@pytest.fixture
def runs(project, benchmark, scripted, right):
    """editor@3 answers everything; editor@2 gets add/1 to add/4 wrong."""

    def older(prompt):
        return " a" if any(f"add_{n}(" in prompt for n in (1, 2, 3, 4)) else right(prompt)

    def make(checkpoint, answers):
        return run_benchmark(project.id, benchmark="adding@1", checkpoint=checkpoint, completer=scripted(answers))

    return make("editor@3", right), make("editor@2", older)


@pytest.fixture
def serve(settings, monkeypatch):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    monkeypatch.setattr(completers, "FIRST_WAIT_S", 0.01)
    running = []

    def start(behave) -> JudgeServer:
        running.append(JudgeServer(behave))
        return running[-1]

    yield start
    for server in running:
        server.close()


def judge_with(project, runs, server, model, *, limit=1):
    return judge_pairs(
        project.id,
        left_run=runs[0],
        right_run=runs[1],
        completer=HttpCompleter(base_url=server.url, model=model, headers={}),
        judge=Judge(name=model, model=model),
        limit=limit,
    )


def run_job():
    run(claim(Job.objects.get(kind=RETRY_JOB, state="queued").id, "test"))


def test_f29_of_seven_judges_two_come_late_and_one_is_blocked_with_its_reason(project, runs, serve):
    def behave(model, data, n):
        if model == "judge-7":
            return 401, ""
        if model in ("judge-2", "judge-3") and n < 2:
            return 429, ""
        return prefers(lambda answer: "+" in answer)(model, data, n)

    server = serve(behave)
    for number in range(1, 8):
        judge_with(project, runs, server, f"judge-{number}")
    with tenant(project.id):
        by_judge = dict(Comparison.objects.values_list("judge__model", "verdict"))
        assert [by_judge[f"judge-{number}"] for number in range(1, 8)] == ["left"] * 6 + ["error"]
        assert set(JudgeCall.objects.filter(judge__model="judge-7").values_list("error", flat=True)) == {"status 401"}


def test_f29_a_blocked_judgement_is_asked_for_again_and_gets_its_verdict(project, runs, serve, settings):
    is_down = threading.Event()
    is_down.set()
    server = serve(lambda *told: (401, "") if is_down.is_set() else prefers(lambda answer: "+" in answer)(*told))
    judge_with(project, runs, server, "judge-7", limit=3)
    settings.JUDGE_URL, settings.JUDGE_MODEL, settings.JUDGE_KEY = server.url, "judge-7", ""
    is_down.clear()
    with tenant(project.id):
        judge = JudgeVersion.objects.get()
        assert request_retry(judge, actor="ada") == 3
    run_job()
    with tenant(project.id):
        assert set(Comparison.objects.values_list("verdict", flat=True)) == {"left"}
        assert JudgeCall.objects.filter(verdict="error").count() == 6, "what failed is kept"
        assert JudgeCall.objects.filter(verdict="left").count() == 6
        assert AuditEvent.objects.get(verb="retry judgements").after["judgements"] == 3
        with pytest.raises(Conflict, match="no blocked judgement"):
            request_retry(judge, actor="ada")


def test_many_are_asked_for_batch_by_batch_and_each_once(project, runs, serve, settings, monkeypatch):
    monkeypatch.setattr("evals.services.retries.AT_ONCE", 2)
    server = serve(lambda *_: (401, ""))
    judge_with(project, runs, server, "judge-7", limit=3)
    settings.JUDGE_URL, settings.JUDGE_MODEL, settings.JUDGE_KEY = server.url, "judge-7", ""
    server.asked.clear()
    with tenant(project.id):
        assert request_retry(JudgeVersion.objects.get(), actor="ada") == 3
    run_job()
    assert server.asked == {"judge-7": 4}
    run_job()
    assert server.asked == {"judge-7": 6} and not Job.objects.filter(kind=RETRY_JOB, state="queued").exists()


def test_what_fails_again_stays_blocked(project, runs, serve, settings):
    server = serve(lambda *_: (401, ""))
    judge_with(project, runs, server, "judge-7")
    settings.JUDGE_URL, settings.JUDGE_MODEL, settings.JUDGE_KEY = server.url, "judge-7", ""
    with tenant(project.id):
        request_retry(JudgeVersion.objects.get(), actor="ada")
    run_job()
    with tenant(project.id):
        assert Comparison.objects.get().verdict == "error" and JudgeCall.objects.count() == 4


def test_a_verdict_is_never_asked_for_again(project, runs, serve, settings):
    server = serve(lambda *_: verdict("A"))
    judge_with(project, runs, server, "judge-1")
    settings.JUDGE_URL, settings.JUDGE_MODEL, settings.JUDGE_KEY = server.url, "judge-1", ""
    with tenant(project.id), pytest.raises(Conflict):
        request_retry(JudgeVersion.objects.get(), actor="ada")


def test_a_judge_that_cannot_be_asked_any_more_says_why(project, runs, serve):
    server = serve(lambda *_: (401, ""))
    judge_with(project, runs, server, "judge-7")
    with tenant(project.id), pytest.raises(InvalidInput, match="judge-7 cannot be asked"):
        request_retry(JudgeVersion.objects.get(), actor="ada")
