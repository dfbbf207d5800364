"""`POST /v1/events` over HTTP: outcomes, refusals, orphans, tenants."""

import json
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import OperationalError

from feedback.models import LedgerItem, OutcomeCount, Turn, TurnPayload, UserSignal
from feedback.services import door
from jobs.models import Job
from registry.auth import internal_token
from registry.internal_token import Purpose
from registry.tenancy import tenant

pytestmark = pytest.mark.django_db


def at(seconds: float = 0.0) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


AT = at()


def turn(id: str = "t1", **fields) -> dict:
    return {
        "type": "turn",
        "id": id,
        "session": "s1",
        "at": AT,
        "checkpoint": "editor@3",
        "prompt": "def add(a, b): return ",
        "completion": "a\t+ b\n\\N \\ 한국어 🙂",
        "prompt_token_ids": [1, 2],
        "completion_token_ids": [3, 4],
        "logprobs": [-0.1, -1e-300],
        "weight_versions": [[0, 2, 3]],
        "user": "u-17",
    } | fields


def signal(id: str = "g1", **fields) -> dict:
    return {"type": "signal", "id": id, "turn": "t1", "kind": "accept", "at": AT, "user": "u-17"} | fields


def counts(project) -> dict[str, int]:
    with tenant(project.id):
        return dict(OutcomeCount.objects.values_list("outcome", "count"))


def test_a_turn_and_its_signal_are_stored_joined_and_labelled_by_one_job(send, project):
    reply = send(turn(), signal())
    assert reply.status_code == 202
    assert reply.json() == {
        "received": 2,
        "outcomes": {"accepted": 2},
        "orphans": 0,
        "items": [
            {"index": 0, "id": "t1", "outcome": "accepted"},
            {"index": 1, "id": "g1", "outcome": "accepted"},
        ],
    }
    with tenant(project.id):
        stored = Turn.objects.get(turn_id="t1")
        assert stored.checkpoint == "editor@3"
        assert (stored.session.session_id, stored.session.num_turns, stored.has_logprobs) == ("s1", 1, True)
        assert UserSignal.objects.get().turn == stored
        assert Job.objects.get().payload == {"turns": ["t1"]}


def test_the_payload_comes_back_to_the_character(send, project):
    messages = [{"role": "user", "content": 'tab\t newline\n quote" backslash\\ \\n 한국어 🙂'}]
    send(turn(prompt=None, messages=messages, metadata={"a\\b": [1, 2.5, None, "x\ty"]}))
    with tenant(project.id):
        payload = TurnPayload.objects.get(project_id=project.id, turn_id="t1")
    assert payload.completion == turn()["completion"]
    assert payload.messages == messages
    assert payload.metadata == {"a\\b": [1, 2.5, None, "x\ty"]}
    assert (payload.completion_token_ids, payload.logprobs) == ([3, 4], [-0.1, -1e-300])
    assert payload.weight_versions == [[0, 2, 3]]


def test_the_same_request_twice_is_all_duplicates(outcomes, project):
    items = [turn(), signal(), signal("g2", kind="copy")]
    assert outcomes(*items) == ["accepted"] * 3
    assert outcomes(*items) == ["duplicate"] * 3
    assert counts(project) == {"accepted": 3, "duplicate": 3}


def test_the_same_id_with_another_body_is_a_conflict_and_the_first_stands(outcomes, project):
    outcomes(turn())
    assert outcomes(turn(completion="other")) == ["conflict"]
    assert outcomes(signal("t1")) == ["conflict"]  # a signal may not take the id of a turn either
    with tenant(project.id):
        assert TurnPayload.objects.get(project_id=project.id, turn_id="t1").completion == turn()["completion"]


def test_one_id_three_times_in_a_request_counts_the_first(outcomes):
    assert outcomes(signal(), signal(), signal(kind="reject")) == ["accepted", "duplicate", "conflict"]


def test_a_conflicting_id_twice_in_a_request_is_held_against_what_is_stored(outcomes):
    outcomes(signal())
    assert outcomes(signal(kind="reject"), signal(kind="reject"), signal()) == ["conflict", "conflict", "duplicate"]


def test_one_bad_item_never_loses_the_others(send, project):
    reply = send(signal(kind="like"), turn(), {"type": "turn"}, 3, signal("g2"))
    answer = reply.json()
    assert [item["outcome"] for item in answer["items"]] == ["invalid", "accepted", "invalid", "invalid", "accepted"]
    assert answer["items"][0] | {"message": ""} == {
        "index": 0, "id": "g1", "outcome": "invalid", "field": "kind", "message": "",
    }  # fmt: skip
    assert answer["outcomes"] == {"invalid": 3, "accepted": 2}
    assert counts(project) == {"invalid": 3, "accepted": 2}
    with tenant(project.id):
        assert LedgerItem.objects.count() == 2  # count of stored = count of success


def test_a_signal_sent_before_its_turn_waits_and_is_joined_when_the_turn_comes(send, project):
    assert send(signal()).json()["orphans"] == 1
    assert send(turn()).json()["orphans"] == 0
    with tenant(project.id):
        assert UserSignal.objects.get().turn == Turn.objects.get()


def test_within_one_request_any_order_is_joined(send, project):
    assert send(signal(), signal("g2", kind="copy"), turn()).json()["orphans"] == 0
    with tenant(project.id):
        assert UserSignal.objects.filter(turn=None).count() == 0


def test_turns_in_reverse_order_with_a_signal_between_make_one_session(send, project):
    send(turn("t3", index=2, at=at(20)))
    send(signal(turn="t1"), turn("t2", index=1, at=at(10)))
    send(turn("t1", index=0, at=at(0)))
    with tenant(project.id):
        turns = list(Turn.objects.order_by("index"))
        session = turns[0].session
        assert [turn.turn_id for turn in turns] == ["t1", "t2", "t3"]
        assert (session.num_turns, session.first_at, session.last_at) == (3, turns[0].at, turns[2].at)
        assert UserSignal.objects.get().turn == turns[0]


@pytest.mark.parametrize(
    "unknown", ["7b1f4c1e-9a52-4f0e-8c53-2f6d0c0c9a11", "00000000-0000-0000-0000-000000000000", "not an id", "theirs"]
)
def test_signals_for_ids_nobody_here_knows_are_all_parked_alike(unknown, send, project, other_project):
    send(turn("theirs"), to=other_project)
    answer = send(signal(turn=unknown)).json()
    assert answer == {
        "received": 1,
        "outcomes": {"accepted": 1},
        "orphans": 1,
        "items": [{"index": 0, "id": "g1", "outcome": "accepted"}],
    }
    with tenant(project.id):
        assert UserSignal.objects.get().is_orphan


def test_the_same_ids_in_two_projects_are_two_different_things(outcomes, project, other_project):
    assert outcomes(turn(), signal()) == ["accepted", "accepted"]
    assert outcomes(turn(completion="b + a"), signal(kind="reject"), to=other_project) == ["accepted", "accepted"]
    for owner, text, kind in [(project, turn()["completion"], "accept"), (other_project, "b + a", "reject")]:
        with tenant(owner.id):
            assert TurnPayload.objects.get(project_id=owner.id).completion == text
            assert UserSignal.objects.get().kind == kind
            assert UserSignal.objects.get().turn == Turn.objects.get()


@pytest.mark.parametrize("number", [1, 500, 501, 10_000])
def test_up_to_ten_thousand_items_are_taken_at_once(number, outcomes):
    assert outcomes(*[signal(f"g{place}") for place in range(number)]) == ["accepted"] * number


def test_ten_thousand_and_one_items_are_refused_with_413(send, project):
    reply = send(*[signal(f"g{place}") for place in range(10_001)])
    assert (reply.status_code, reply.json()["error"]["field"]) == (413, "items")
    assert counts(project) == {"request:413": 1}


def test_more_than_sixteen_mebibytes_are_refused_with_413(send):
    assert send(body=b'{"items": []}' + b" " * 16 * 1024 * 1024).status_code == 413


@pytest.mark.parametrize("body", [b" ", b"{", b"[]", b'{"x": 1}', b"\xff"])
def test_what_is_not_json_with_items_is_refused_with_400_and_counted_apart(body, send, project):
    reply = send(body=body)
    error = reply.json()["error"]
    assert reply.status_code == 400
    assert (error["code"], set(error)) == ("invalid", {"code", "message", "field", "request_id"})
    assert error["request_id"] == reply["x-request-id"]
    assert counts(project) == {"request:400": 1}


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonl"])
def test_another_content_type_is_refused_with_415(kind, send):
    assert send(body=b'{"items": []}', content_type=kind).status_code == 415


def test_a_compressed_body_is_refused_with_415(send):
    assert send(turn(), **{"content-encoding": "gzip"}).status_code == 415


def test_json_with_a_charset_is_taken(send):
    assert send(turn(), content_type="application/json; charset=utf-8").status_code == 202


@pytest.mark.parametrize("header", [None, "Bearer nothing", "Basic abc", "Bearer strop_0123456789.secret"])
def test_without_a_key_that_opens_anything_the_answer_is_401(header, client):
    headers = {} if header is None else {"authorization": header}
    reply = client.post("/v1/events", json.dumps({"items": []}), content_type="application/json", headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (401, "unauthorized")


def test_a_key_without_the_scope_gets_403(client, api_key):
    headers = {"authorization": f"Bearer {api_key('read')}"}
    reply = client.post("/v1/events", '{"items": []}', content_type="application/json", headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, "forbidden")


def test_our_own_processes_send_events_as_the_project_their_token_names(client, project):
    def post(purpose: Purpose, project_id: object) -> int:
        headers = {"authorization": f"Bearer {internal_token(purpose, project=project_id)}"}
        body = json.dumps({"items": [signal()]})
        return client.post("/v1/events", body, content_type="application/json", headers=headers).status_code

    assert post(Purpose.EVENTS, project.id) == 202
    assert post(Purpose.EVENTS, uuid4()) == 404
    assert post(Purpose.ANSWERS, project.id) == 403
    assert post(Purpose.WEIGHTS, None) == 403


@pytest.mark.parametrize("method", ["get", "put", "patch", "delete"])
def test_only_post_is_allowed(method, client):
    assert getattr(client, method)("/v1/events").status_code == 405


def test_too_old_and_too_early_items_are_refused_and_imports_are_not(outcomes):
    day = 24 * 3600
    items = [
        turn("old", at=at(-401 * day)),
        turn("import", at=at(-4000 * day), source="import"),
        signal("import-signal", turn="import", at=at(-4000 * day), source="import"),
        turn("early", at=at(day)),
    ]
    assert outcomes(*items) == ["too_old", "accepted", "accepted", "too_early"]


def test_while_labelling_is_far_behind_requests_are_refused_before_anything_is_written(send, project):
    send(signal())
    Job.objects.update(run_at=datetime.now(UTC) - timedelta(seconds=door.MAX_WAIT_S + 60))
    door.forget()
    reply = send(turn())
    assert (reply.status_code, reply["Retry-After"]) == (429, str(door.RETRY_AFTER_S))
    with tenant(project.id):
        assert Turn.objects.count() == 0
    assert counts(project) == {"accepted": 1, "request:429": 1}


def test_without_a_database_the_answer_is_503_with_a_time_to_retry(send, monkeypatch):
    send(turn())

    def down(*_args, **_options):
        raise OperationalError("connection refused")

    monkeypatch.setattr("feedback.api.events.authenticate", down)
    reply = send(turn())
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "unavailable")
    assert int(reply["Retry-After"]) > 0


def test_a_metric_of_a_rating_is_kept(send, project):
    send(signal(kind="rating", value=4, metric="helpful", turn=None, session="s1"))
    with tenant(project.id):
        assert UserSignal.objects.get().metadata == {"metric": "helpful"}


def test_only_signals_ask_for_labelling(send, project):
    send(turn(), turn("t2", source="eval"))
    assert Job.objects.count() == 0
    send(signal())
    assert Job.objects.get().payload == {"turns": ["t1"]}


def test_a_turn_whose_signal_waited_asks_for_labelling(send, project):
    send(signal())
    Job.objects.all().delete()
    send(turn(), turn("t2"))
    assert Job.objects.get().payload == {"turns": ["t1"]}
