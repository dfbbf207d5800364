"""Canaries from the button to the pause, by the job that a worker runs, against a judge behind HTTP."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils import timezone

from evals.judging.canaries import GOOD, Standing, canary_pairs
from evals.judging.pairwise import late
from evals.judging.prompt import PROMPT_DIGEST
from evals.judging.verdict import PARSER_VERSION
from evals.models import CanaryRun, JudgeVersion
from evals.services import completers
from evals.services.canaries import CANARY_JOB, finish, request_canaries, standing_of, standings
from evals.services.judgements import report
from jobs.models import Job
from jobs.services import claim, run
from registry.errors import Conflict, InvalidInput
from registry.models import AuditEvent, PriceCard
from registry.tenancy import tenant
from tests.evals.services.judge_server import JudgeServer, prefers

pytestmark = pytest.mark.django_db


@pytest.fixture
def serve(settings, monkeypatch):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    monkeypatch.setattr(completers, "FIRST_WAIT_S", 0.01)
    running = []

    def start(behave) -> JudgeServer:
        running.append(JudgeServer(behave))
        settings.JUDGE_URL, settings.JUDGE_MODEL, settings.JUDGE_KEY = running[-1].url, "judge-1", ""
        return running[-1]

    yield start
    for server in running:
        server.close()


@pytest.fixture
def judge(project):
    with tenant(project.id):
        return JudgeVersion.objects.create(
            name="judge", model="judge-1", prompt_digest=PROMPT_DIGEST, parser_version=PARSER_VERSION
        )


def run_job():
    queued = Job.objects.filter(kind=CANARY_JOB, state="queued")
    run(claim(queued.get().id, "test"))


def carried_out(project, judge) -> CanaryRun:
    with tenant(project.id):
        asked = request_canaries(judge, actor="ada")
    run_job()
    with tenant(project.id):
        return CanaryRun.objects.get(id=asked.id)


def test_a_careful_judge_passes_and_every_reply_is_kept(project, judge, serve):
    server = serve(prefers(lambda answer: answer == GOOD))
    done = carried_out(project, judge)
    assert (done.state, done.standing, done.sentence) == ("done", "passed", "none of 12 canaries won")
    assert server.asked == {"judge-1": 24} and done.num_calls == 24
    assert {call["order"] for call in done.results[0]["calls"]} == {"lr", "rl"}
    assert done.finished_at is not None and '"verdict": "A"' in done.results[0]["calls"][0]["raw"]


def test_a_judge_that_can_be_gamed_is_paused_for_rewards_and_gates(project, judge, serve):
    serve(prefers(lambda answer: "preferred" in answer))
    done = carried_out(project, judge)
    assert done.standing == "failed" and done.sentence == "1 of 12 canaries won (asks for the grade)"
    with tenant(project.id):
        assert standing_of(judge).is_paused
        told = report(judge, left="editor@2", right="editor@1")
        assert (told["has_vote"], told["is_paused"]) == (False, True)
        events = AuditEvent.objects.filter(object_kind="judge").order_by("id")
        assert [(event.verb, event.actor) for event in events] == [("run canaries", "ada"), ("finish canaries", "ada")]


def test_passing_again_ends_the_pause(project, judge, serve):
    serve(prefers(lambda answer: "preferred" in answer))
    carried_out(project, judge)
    serve(prefers(lambda answer: answer == GOOD))
    carried_out(project, judge)
    with tenant(project.id):
        assert standing_of(judge) is Standing.PASSED


def test_a_judge_that_is_away_leaves_the_run_before_in_force(project, judge, serve):
    serve(prefers(lambda answer: "preferred" in answer))
    carried_out(project, judge)
    serve(lambda *_: (401, ""))
    done = carried_out(project, judge)
    assert done.standing == "inconclusive" and "could not be judged" in done.sentence
    assert done.results[0]["calls"][0]["error"] == "status 401"
    with tenant(project.id):
        assert standing_of(judge) is Standing.FAILED


def test_the_cost_of_a_run_is_kept_and_unpriced_calls_are_counted(project, judge, serve):
    serve(prefers(lambda answer: answer == GOOD))
    done = carried_out(project, judge)
    assert (done.cost_usd, done.num_unpriced) == (None, 24)
    with tenant(project.id):
        PriceCard.objects.create(
            model="judge-1", valid_from=timezone.now() - timedelta(days=1), input_usd=1, output_usd=10
        )
    done = carried_out(project, judge)
    assert (done.cost_usd, done.num_unpriced) == (24 * Decimal("0.0002"), 0)


def test_requests_without_a_reply_are_booked_as_no_calls(project, judge, serve):
    serve(lambda *_: (401, ""))
    done = carried_out(project, judge)
    assert (done.standing, done.num_calls, done.num_unpriced, done.cost_usd) == ("inconclusive", 0, 0, None)


def test_a_canary_that_was_given_up_may_have_been_paid_for_and_is_unpriced(project, judge):
    with tenant(project.id):
        asked = CanaryRun.objects.create(judge=judge, requested_by="ada")
        finish(asked, [late(pair, "no verdict within 60 s") for pair in canary_pairs()[:3]])
        done = CanaryRun.objects.get(id=asked.id)
    assert (done.num_calls, done.num_unpriced, done.cost_usd) == (3, 3, None)


def test_one_run_at_a_time(project, judge, serve):
    serve(prefers(lambda answer: answer == GOOD))
    with tenant(project.id):
        request_canaries(judge, actor="ada")
        with pytest.raises(Conflict, match="wait for them"):
            request_canaries(judge, actor="bob")


def test_a_judge_whose_model_the_settings_no_longer_name_is_refused(project, judge, settings):
    settings.JUDGE_URL = ""
    with tenant(project.id), pytest.raises(InvalidInput, match="judge-1 cannot be asked"):
        request_canaries(judge, actor="ada")


def test_a_version_with_an_older_prompt_cannot_be_asked(project, serve):
    serve(prefers(lambda answer: answer == GOOD))
    with tenant(project.id):
        old = JudgeVersion.objects.create(name="j", model="judge-1", prompt_digest="old", parser_version="1")
        with pytest.raises(InvalidInput, match="another prompt or parser"):
            request_canaries(old, actor="ada")


def test_settings_that_change_before_the_job_runs_fail_the_run_with_the_reason(project, judge, serve, settings):
    serve(prefers(lambda answer: answer == GOOD))
    with tenant(project.id):
        request_canaries(judge, actor="ada")
    settings.JUDGE_MODEL = "judge-2"
    run_job()
    with tenant(project.id):
        done = CanaryRun.objects.get()
        assert (done.state, done.standing) == ("failed", None) and "judge-2" in done.error
        assert standings([judge]) == {}


def test_a_job_that_runs_twice_asks_once(project, judge, serve):
    server = serve(prefers(lambda answer: answer == GOOD))
    carried_out(project, judge)
    Job.objects.filter(kind=CANARY_JOB).update(state="queued")
    run_job()
    assert server.asked == {"judge-1": 24}
