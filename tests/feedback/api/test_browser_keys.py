"""CASES I.44: a key that lies open in a page sends signals from its own sites at a limited rate, and opens no more."""

import json
from datetime import timedelta

import pytest
from django.utils import timezone

from feedback.models import UserSignal
from registry.models import ApiKey
from registry.services import create_key
from registry.tenancy import tenant

SITE = "https://app.example.com"


@pytest.fixture
def browser_key(project):
    with tenant(project.id):
        return create_key("page", ["ingest"], actor="owner", origins=[SITE], items_per_minute=3)[0]


@pytest.fixture
def send(client, browser_key):
    def post(*items, origin: str | None = SITE):
        headers = {"authorization": f"Bearer {browser_key}"} | ({"origin": origin} if origin else {})
        body = json.dumps({"items": list(items)})
        return client.post("/v1/events", body, content_type="application/json", headers=headers)

    return post


def signal(id: str = "s-1", **fields):
    return {"type": "signal", "id": id, "turn": "t", "kind": "accept", "at": timezone.now().isoformat()} | fields


def test_a_page_of_the_right_site_sends_signals_and_may_read_the_answer(send, project):
    reply = send(signal())
    assert (reply.status_code, reply.json()["outcomes"]) == (202, {"accepted": 1})
    assert reply["access-control-allow-origin"] == SITE
    with tenant(project.id):
        assert UserSignal.objects.count() == 1


@pytest.mark.parametrize("origin", ["https://evil.example", "http://app.example.com", f"{SITE}.evil.example", None])
def test_another_site_is_refused_and_may_not_read_why(send, origin):
    reply = send(signal(), origin=origin)
    assert (reply.status_code, reply.json()["error"]["field"]) == (403, "origin")
    assert "access-control-allow-origin" not in reply


def test_a_turn_is_refused_and_the_signal_beside_it_is_not(send):
    turn = {"type": "turn", "id": "t-1", "session": "s", "at": timezone.now().isoformat(), "prompt": "a", "model": "x"}
    reply = send(turn, signal()).json()
    assert reply["outcomes"] == {"invalid": 1, "accepted": 1} and reply["items"][0]["field"] == "type"


def test_a_page_may_not_send_old_signals_as_an_import(send):
    assert send(signal(source="import")).json()["items"][0]["field"] == "source"


def test_what_is_beyond_the_rate_is_refused_with_a_time_to_wait(send, project):
    assert send(signal("a"), signal("b")).status_code == 202
    reply = send(signal("c"), signal("d"))
    assert (reply.status_code, reply["retry-after"]) == (429, "60")
    assert send(signal("c")).status_code == 202  # the refused two were not counted
    with tenant(project.id):
        ApiKey.objects.update(window_at=timezone.now() - timedelta(seconds=61))
    assert send(signal("d")).status_code == 202


@pytest.mark.django_db(transaction=True)  # the gateway's views look from threads of their own
@pytest.mark.parametrize(
    "path", ["/v1/models", "/v1/weights/policies", "/v1/weights/head?policy=00000000-0000-0000-0000-000000000000"]
)
def test_it_reads_nothing(client, browser_key, path):
    assert client.get(path, headers={"authorization": f"Bearer {browser_key}", "origin": SITE}).status_code == 403


@pytest.mark.django_db(transaction=True)
def test_it_asks_no_model(client, browser_key):
    headers = {"authorization": f"Bearer {browser_key}", "origin": SITE}
    reply = client.post("/v1/completions", "{}", content_type="application/json", headers=headers)
    assert reply.status_code == 403


def test_a_browser_may_ask_first_whether_it_may_send(client, project):
    reply = client.options("/v1/events", headers={"origin": SITE, "access-control-request-method": "POST"})
    assert reply.status_code == 204 and reply["access-control-allow-origin"] == SITE
    assert "authorization" in reply["access-control-allow-headers"]


def test_other_keys_have_no_rate_and_no_sites(client, api_key):
    headers = {"authorization": f"Bearer {api_key('ingest')}", "origin": "https://evil.example"}
    body = json.dumps({"items": [signal(f"s-{n}") for n in range(20)]})
    reply = client.post("/v1/events", body, content_type="application/json", headers=headers)
    assert reply.status_code == 202 and "access-control-allow-origin" not in reply


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"scopes": ["ingest", "read"]}, "scopes"),
        ({"origins": ["app.example.com"]}, "origins"),
        ({"origins": [f"{SITE}/path"]}, "origins"),
        ({"origins": ["https://user@app.example.com"]}, "origins"),
        ({"origins": ["*"]}, "origins"),
        ({"origins": ["http://[x"]}, "origins"),
        ({"origins": ["http://example.com:99999"]}, "origins"),
        ({"items_per_minute": None}, "items_per_minute"),
        ({"items_per_minute": 0}, "items_per_minute"),
    ],
)
def test_a_browser_key_that_would_open_more_is_not_made(project, fields, named):
    from registry.errors import InvalidInput

    made = {"scopes": ["ingest"], "origins": [SITE], "items_per_minute": 60} | fields
    with tenant(project.id), pytest.raises(InvalidInput) as refusal:
        create_key("page", made.pop("scopes"), actor="owner", **made)
    assert refusal.value.field == named
