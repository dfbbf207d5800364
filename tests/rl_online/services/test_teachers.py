"""A teacher behind an address: what it is asked, what is kept of its replies, and what they cost."""

import json
import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.utils import timezone

from evals.services import completers
from feedback.models import TurnPayload
from jobs.models import Job
from jobs.services import NotYet, claim_next
from registry.errors import InvalidInput
from registry.models import Budget, PriceCard
from registry.tenancy import tenant
from rl_online.models import TeacherAnswer
from rl_online.services import teachers
from rl_online.services.teachers import (
    ASK_JOB,
    LOGPROBS,
    TEXT,
    Teacher,
    ask_job,
    ask_teacher,
    count_answers,
    is_asking,
    lock_of,
    open_questions,
)
from rl_online.spending.ledger import ledger
from tests.evals.services.test_completers import Server

USAGE = {"prompt_tokens": 100, "completion_tokens": 10}
ENOUGH = {"at_most": 100, "actor": "ada"}


@pytest.fixture
def serve(settings, monkeypatch):
    """serve(step, ...) -> a server that plays its script; retries wait next to nothing."""
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    monkeypatch.setattr(completers, "FIRST_WAIT_S", 0.01)
    running = []

    def start(*script):
        running.append(Server(script))
        return running[-1]

    yield start
    for server in running:
        server.close()


def said(text, *, finish="stop", **message):
    return {"choices": [{"message": {"content": text, **message}, "finish_reason": finish}], "usage": USAGE}


def echoed(*rows):
    """The prompt back, with the log-probability of each token but the first and what else was likely there."""
    tokens = [f"token_id:{token}" for token, _, _ in rows]
    logprobs = {
        "tokens": tokens,
        "token_logprobs": [own for _, own, _ in rows],
        "top_logprobs": [None if top is None else {f"token_id:{k}": v for k, v in top.items()} for _, _, top in rows],
    }
    return {"choices": [{"text": "", "logprobs": logprobs, "finish_reason": "length"}], "usage": USAGE}


# Of the prompt 5, 6 and the answer 7, 8, 0, and one token more that was drawn
GOOD_ECHO = echoed(
    (5, None, None), (6, -3.0, {9: -0.1}), (7, -0.5, {7: -0.5, 4: -1.0}), (8, -2.0, {3: -0.3}), (0, -0.1, {0: -0.1}),
    (2, -0.7, {2: -0.7}),
)  # fmt: skip


@pytest.fixture
def work(project):
    """Do the asking that waits."""

    def run():
        job = claim_next(["judge"], "test")
        assert job is not None and job.kind == ASK_JOB
        ask_job(job)

    return run


def kept(project):
    with tenant(project.id):
        return list(TeacherAnswer.objects.order_by("turn__turn_id").values_list("turn__turn_id", "state", "text"))


def teacher_at(server, wants=TEXT):
    return Teacher(model="big", address=server.url, wants=wants)


def test_it_is_asked_once_about_each_answer_and_kept_with_its_thinking_and_cost(project, policy, judged, serve, work):
    judged(), judged(prompt=None, messages=[{"role": "user", "content": "w3"}])
    server = serve((200, {}, said("w7 w8", reasoning_content="hm")))
    with tenant(project.id):
        PriceCard.objects.create(
            model="big", valid_from=timezone.now() - timedelta(days=1), input_usd=Decimal(1), output_usd=Decimal(10)
        )
        assert ask_teacher(policy, teacher_at(server), **ENOUGH) == 2
        assert is_asking(policy, teacher_at(server))
    work()
    assert sorted(body["messages"][-1]["content"] for _, _, body in server.requests) == ["def f(", "w3"]
    with tenant(project.id):
        assert [one.reasoning for one in TeacherAnswer.objects.all()] == ["hm", "hm"]
        assert ask_teacher(policy, teacher_at(server), **ENOUGH) == 0
        counted = count_answers(policy, teacher_at(server), at_most=100)
        assert (counted["answered"], counted["open"], Decimal(counted["usd"])) == (2, 0, Decimal("0.0004"))
        now = datetime.now(UTC)
        spent = ledger(now - timedelta(hours=2), now + timedelta(hours=1)).spend_of("big", "training")
    assert (spent.calls, spent.cost_usd) == (2, Decimal("0.0004"))


def test_what_is_refused_cut_or_empty_is_a_state_and_a_failure_is_asked_again(
    project, policy, judged, serve, work, monkeypatch
):
    for _ in range(4):
        judged()
    replies = {
        "turn-001": (400, {}, {"error": {"message": "not that"}}), "turn-002": (200, {}, said("w7", finish="length")),
        "turn-003": (200, {}, said("  ")), "turn-004": (200, {}, said("w7")),
    }  # fmt: skip
    left = [replies[name] for name in sorted(replies, reverse=True)]  # the newest is asked first, one after the other

    server = serve(*left)
    monkeypatch.setattr(teachers, "AT_ONCE", 1)
    with tenant(project.id):
        assert ask_teacher(policy, teacher_at(server), **ENOUGH) == 4
    work()
    assert [row[1] for row in kept(project)] == ["refused", "cut", "failed", "answered"]
    with tenant(project.id):
        turns, _ = open_questions(policy, teacher_at(server), at_most=100)
    assert [turn.turn_id for turn in turns] == ["turn-003"]


def test_of_a_server_that_echoes_each_tokens_likely_ones_are_kept(project, policy, judged, serve, work):
    judged()
    server = serve((200, {}, GOOD_ECHO))
    with tenant(project.id):
        ask_teacher(policy, teacher_at(server, LOGPROBS), **ENOUGH)
    work()
    path, _, body = server.requests[0]
    assert (path, body["prompt"], body["echo"], body["logprobs"]) == ("/v1/completions", [5, 6, 7, 8, 0], True, 20)
    with tenant(project.id):
        assert TeacherAnswer.objects.get().likely == [
            [-0.5, [[7, -0.5], [4, -1.0]]],
            [-2.0, [[3, -0.3], [8, -2.0]]],
            [-0.1, [[0, -0.1]]],
        ]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (said("w7") | {"choices": [{"text": "w7"}]}, "it says 0 tokens of 5"),
        (echoed(*[(token, -1.0, {token: -1.0}) for token in (5, 6, 7, 9, 0)]), "token 3 is 'token_id:9' there and 8"),
        (json.loads(json.dumps(GOOD_ECHO).replace("token_id:", "w")), "not its id"),
    ],
)
def test_a_reply_about_other_tokens_than_ours_is_a_failure(project, policy, judged, serve, work, reply, error):
    judged()
    server = serve((200, {}, reply))
    with tenant(project.id):
        ask_teacher(policy, teacher_at(server, LOGPROBS), **ENOUGH)
    work()
    with tenant(project.id):
        one = TeacherAnswer.objects.get()
    assert one.state == "failed" and error in one.error and one.likely is None


def test_nothing_is_asked_once_the_budget_is_spent(project, policy, judged, serve, work):
    judged()
    server = serve((200, {}, said("w7")))
    with tenant(project.id):
        ask_teacher(policy, teacher_at(server), **ENOUGH)
        Budget.objects.create(
            kind="training", period="day", usd=Decimal(1), alert_percents=[], stops=True, changed_by="ada",
            spent_until=timezone.now() + timedelta(hours=1),
        )  # fmt: skip
        with pytest.raises(InvalidInput, match="budget of \\$1 for training"):
            ask_teacher(policy, teacher_at(server), **ENOUGH)
    work()
    assert (server.requests, kept(project)) == ([], [])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"wants": "more"}, "give text or logprobs"),
        ({"model": ""}, "name the model"),
        ({"model": "big\0"}, "name the model"),
        ({"address": "file:///x"}, "http"),
        ({"address": "http://127.0.0.1/" + "a" * 500}, "an address of at most 500"),
        ({"address": "http://127.0.0.1/\0"}, "an address of at most 500 printable"),
    ],
)
def test_what_cannot_be_asked_is_refused(project, policy, serve, changes, said):
    given = {"model": "big", "address": serve((200, {}, {})).url, "wants": TEXT} | changes
    with tenant(project.id), pytest.raises(InvalidInput, match=said):
        ask_teacher(policy, Teacher(**given), **ENOUGH)


REDACTED = {"prompt": "<EMAIL>", "prompt_token_ids": None, "completion_token_ids": None, "logprobs": None}


@pytest.mark.parametrize("redact", [lambda rows: rows.delete(), lambda rows: rows.update(**REDACTED)])
@pytest.mark.parametrize("wants", [TEXT, LOGPROBS])
def test_a_redacted_turn_loses_what_was_said_about_it_and_keeps_what_that_cost(
    project, policy, judged, serve, work, redact, wants
):
    judged(id="redacted"), judged(id="stays")
    reply = said("w7", reasoning_content="hm") if wants == TEXT else GOOD_ECHO
    with tenant(project.id):
        teacher = teacher_at(serve((200, {}, reply), (200, {}, reply)), wants)
        ask_teacher(policy, teacher, **ENOUGH)
    work()
    with tenant(project.id):
        redact(TurnPayload.objects.filter(project_id=project.id, turn_id="redacted"))
        gone, stays = TeacherAnswer.objects.order_by("turn__turn_id")
        assert (gone.text, gone.reasoning, gone.likely, gone.usage) == ("", "", None, stays.usage)
        assert (stays.text, stays.reasoning) == ("w7", "hm") if wants == TEXT else len(stays.likely) == 3
        assert open_questions(policy, teacher, at_most=100)[0] == []


def test_an_answer_about_a_turn_that_was_redacted_meanwhile_is_not_kept(project, policy, judged, serve, work):
    judged()
    server = serve((200, {}, said("w7", reasoning_content="hm")))
    with tenant(project.id):
        ask_teacher(policy, teacher_at(server), **ENOUGH)
    ask = teachers.answers

    def redacted_before_it_is_stored(*arguments, **options):
        for one in ask(*arguments, **options):
            with tenant(project.id):
                TurnPayload.objects.filter(project_id=project.id).update(**REDACTED)
            yield one

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(teachers, "answers", redacted_before_it_is_stored)
        work()
    with tenant(project.id):
        one = TeacherAnswer.objects.get()
    assert (one.state, one.text, one.reasoning, one.usage["input"]) == ("failed", "", "", 100)


def test_a_teacher_that_is_too_slow_has_failed_and_is_not_asked_for_ever(
    project, policy, judged, serve, work, monkeypatch
):
    judged()
    is_over = threading.Event()
    server = serve(lambda handler: is_over.wait(30))
    monkeypatch.setattr(teachers, "EACH_S", 0.2)
    with tenant(project.id):
        ask_teacher(policy, teacher_at(server), **ENOUGH)
    work()  # no NotYet: this asking is done
    is_over.set()
    with tenant(project.id):
        one = TeacherAnswer.objects.get()
    assert (one.state, one.error, len(server.requests)) == ("failed", "no whole answer within 0.2 s", 1)


def test_no_question_is_started_late_in_a_slice_and_the_job_goes_on(project, policy, judged, serve, work, monkeypatch):
    judged(), judged()
    server = serve((200, {}, said("w7")))
    monkeypatch.setattr(teachers, "STARTS_S", 0.0)
    with tenant(project.id):
        ask_teacher(policy, teacher_at(server), **ENOUGH)
    with pytest.raises(NotYet, match="2 questions to big are open"):
        work()
    assert server.requests == []


def test_of_two_jobs_one_asks_and_the_other_waits(project, policy, judged, serve, work):
    judged()
    server = serve((200, {}, said("w7")))
    with tenant(project.id):
        ask_teacher(policy, teacher_at(server), **ENOUGH)
    other = connection.get_new_connection(connection.get_connection_params())
    try:
        with other.cursor() as cursor:
            name = lock_of(project.id, teacher_at(server))
            cursor.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [name])
        with pytest.raises(NotYet, match="another job still asks big"):
            work()
    finally:
        other.close()
    assert server.requests == []


def test_teachers_with_long_addresses_that_end_differently_are_asked_each(project, policy, judged, serve):
    judged()
    server = serve((200, {}, said("w7")))
    with tenant(project.id):
        for end in ("a", "b", "b"):
            address = f"{server.url}/{'long' * 50}/{end}"
            assert ask_teacher(policy, Teacher(model="big", address=address, wants=TEXT), **ENOUGH) == 1
    assert Job.objects.filter(kind=ASK_JOB).count() == 2


@pytest.mark.parametrize(
    ("second", "state", "cost", "output"),
    [
        ((200, {}, said("w7")), "answered", "0.0004", 20),
        ((404, {}, {}), "failed", "0.0002", 10),
        ((200, {}, said("w7") | {"usage": USAGE | {"cost": 0.5}}), "answered", "0.0004", 20),
    ],
)
def test_what_a_failure_cost_stays_when_it_is_asked_again(
    project, policy, judged, serve, work, second, state, cost, output
):
    judged()
    server = serve((200, {}, said(" ") | {"usage": USAGE | {"cost": 0.25}}), second)
    with tenant(project.id):
        PriceCard.objects.create(
            model="big", valid_from=timezone.now() - timedelta(days=1), input_usd=Decimal(1), output_usd=Decimal(10)
        )
    for _ in range(2):
        with tenant(project.id):
            assert ask_teacher(policy, teacher_at(server), **ENOUGH) == 1
        work()
    with tenant(project.id):
        one = TeacherAnswer.objects.get()
    assert (one.state, one.cost_usd, one.usage["output"]) == (state, Decimal(cost), output)
    told = second[2].get("usage", {}).get("cost", 0)
    assert Decimal(one.usage["provided_usd"]) == Decimal("0.25") + Decimal(told)


def test_what_no_text_column_takes_is_replaced_in_what_was_said(project, policy, judged, serve, work):
    judged(), judged()
    server = serve(
        (200, {}, said("w\0 7", reasoning_content="\ud800 hm")), (400, {}, {"error": {"message": "not\0that"}})
    )
    with tenant(project.id):
        ask_teacher(policy, teacher_at(server), **ENOUGH)
    work()
    with tenant(project.id):
        found = set(TeacherAnswer.objects.values_list("text", "reasoning", "error"))
    assert found == {("w\ufffd 7", "? hm", ""), ("", "", "status 400: not\ufffdthat")}
