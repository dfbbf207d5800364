"""What the management API answers: lists in pages, objects whole, refusals that name the field."""

from datetime import timedelta

import pytest
from django.utils import timezone

from registry.models import AuditEvent
from registry.tenancy import tenant
from tests.console import evaluate, factories, settings_rows


@pytest.fixture
def get(client, api_key):
    headers = {"authorization": f"Bearer {api_key('read')}"}
    return lambda path: client.get(f"/api/v1/{path}", headers=headers)


@pytest.fixture
def post(client, api_key):
    def send(path: str, body: object, *, scope: str = "train"):
        headers = {"authorization": f"Bearer {api_key(scope)}"}
        return client.post(f"/api/v1/{path}", body, content_type="application/json", headers=headers)

    return send


@pytest.fixture
def loop(project):
    with tenant(project.id):
        return factories.make_loop()


def test_turns_come_in_pages_that_together_hold_each_once(get, loop):
    seen, cursor = [], ""
    while True:
        page = get(f"turns?limit=7&cursor={cursor.replace('+', '%2B')}").json()
        assert len(page["items"]) <= 7
        seen += [row["id"] for row in page["items"]]
        if page["next"] is None:
            break
        cursor = page["next"]
    assert len(seen) == len(set(seen)) == 41
    assert set(seen) >= {turn.turn_id for turn in loop.turns}


def test_a_list_is_bounded_by_time(get, loop, project):
    with tenant(project.id):
        factories.make_turn("old", at=timezone.now() - timedelta(days=8))
    assert get("turns?session=old").json()["items"] == []
    since = (timezone.now() - timedelta(days=9)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert [row["session"] for row in get(f"turns?session=old&since={since}").json()["items"]] == ["old"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=1000", "limit"),
        ("limit=x", "limit"),
        ("cursor=nonsense", "before"),
        ("since=yesterday", "since"),
        ("since=2026-11-30T06:00:00", "since"),
        ("since=2026-11-30T06:00:00Z&until=2026-11-29T06:00:00Z", "since"),
        ("since=2020-11-30T06:00:00Z", "since"),
        ("until=0001-01-01T00:00:00Z", "until"),
        ("until=9999-12-31T23:59:59-12:00", "until"),
        ("since=0001-01-01T00:00:00%2B12:00", "since"),
        ("outcome=fine", "outcome"),
    ],
)
def test_a_wrong_query_names_its_field(get, loop, query, field):
    reply = get(f"turns?{query}")
    assert (reply.status_code, reply.json()["error"]["field"]) == (400, field)


def test_a_turn_is_shown_with_its_text_label_and_signals(get, loop):
    turn = loop.turns[0]
    found = get(f"turns/{turn.turn_id}").json()
    assert found["checkpoint"] == "editor@1" and found["label"]["outcome"] == turn.outcome
    assert found["messages"][0]["role"] == "user" and found["completion"]
    assert found["signals"][0]["kind"] == "shown"


def test_an_id_with_a_slash_is_found_too(get, project):
    with tenant(project.id):
        factories.make_policy()
        factories.make_turn("a/b c", turn_id="x/y")
    assert get("sessions/a%2Fb%20c").json()["turns"][0]["id"] == "x/y"
    assert get("turns/x%2Fy").json()["session"] == "a/b c"


@pytest.mark.parametrize("path", ["turns/%00", "sessions/a%00b", "turns/none", "checkpoints/editor@99", "gates/99"])
def test_what_is_not_there_is_not_found(get, loop, path):
    assert get(path).json()["error"]["code"] == "not_found"


def test_accept_shares_are_those_of_the_report_command(get, loop):
    from feedback.selectors import accept_share

    with tenant(loop.policy.project_id):
        expected = {group.key: (group.turns, group.accepted) for group in accept_share(by="checkpoint")}
    groups = get("reports/accept-share?by=checkpoint").json()["groups"]
    assert {group["key"]: (group["turns"], group["accepted"]) for group in groups} == expected


def test_a_promotion_against_the_gate_needs_a_reason_and_is_audited_under_the_key(post, loop, project):
    refused = post("checkpoints/editor@3/promote", {})
    assert (refused.status_code, refused.json()["error"]["field"]) == (400, "reason")
    moved = post("checkpoints/editor@3/promote", {"reason": "the tests are wrong"}).json()
    assert (moved["checkpoint"], moved["previous"]) == ("editor@3", "editor@2")
    with tenant(project.id):
        event = AuditEvent.objects.get(verb="promote against the gate")
    assert event.actor.startswith("key:strop_") and event.reason == "the tests are wrong"


def test_a_rollback_says_which_checkpoint_it_saw_serving(post, loop):
    stale = post("policies/editor/roll-back", {"reason": "worse", "expected": "editor@1"})
    assert (stale.status_code, stale.json()["error"]["code"]) == (409, "conflict")
    assert (
        post("policies/editor/roll-back", {"reason": "worse", "expected": "editor@2"}).json()["checkpoint"]
        == "editor@1"
    )


def test_too_few_samples_are_said_as_a_conflict(post, project):
    with tenant(project.id):
        factories.make_policy()
    reply = post("updates", {"policy": "editor"})
    assert reply.status_code == 409 and "64" in reply.json()["error"]["message"]


def test_an_update_started_here_is_queued_under_the_keys_name(post, get, project):
    with tenant(project.id):
        factories.make_policy(min_turns=4, every_turns=500)
        for i in range(6):
            factories.make_turn(f"s{i}", outcome="accept" if i % 2 else "reject")
    made = post("updates", {"policy": "editor", "overrides": {"learning_rate": 2e-5}})
    assert made.status_code == 201 and made.json()["state"] == "queued"
    assert made.json()["requested_by"].startswith("key:") and made.json()["num_samples"] == 6
    assert post(f"updates/{made.json()['id']}/cancel", {}).json()["state"] == "cancelled"
    assert [row["id"] for row in get("updates").json()["items"]] == [made.json()["id"]]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("updates", {}, "policy"),
        ("updates", {"policy": "none"}, "policy"),
        ("updates", {"policy": "editor", "overrides": {"speed": 1}}, "update_config"),
        ("policies", {"name": "Bad Name", "source": "smollm2"}, "name"),
        ("policies", {"name": "editor", "source": "smollm2"}, "name"),
        ("policies", {"name": "x", "source": "not a name"}, "source"),
        ("policies", {"name": "x", "source": "smollm2", "plan": {"every_turns": 0}}, "every_turns"),
        ("policies", {"name": "x", "source": "smollm2", "plan": {"speed": 1}}, "speed"),
    ],
)
def test_a_wrong_body_names_its_field(post, loop, path, body, field):
    if path == "updates":
        with tenant(loop.policy.project_id):
            loop.updates[-1].delete()
    assert post(path, body).json()["error"]["field"] == field


@pytest.mark.parametrize("body", ["{", "[]", '"x"', "", "[" * 100_000, '{"policy": "\\u0000"}'])
def test_a_body_that_is_none_is_a_bad_request(client, api_key, loop, body):
    headers = {"authorization": f"Bearer {api_key('train')}"}
    reply = client.post("/api/v1/updates", body, content_type="application/json", headers=headers)
    assert reply.status_code in (400, 404) and reply.json()["error"]["request_id"]


def test_settings_change_by_name_and_an_unknown_one_is_refused(client, api_key, project):
    headers = {"authorization": f"Bearer {api_key('admin')}"}

    def patch(body):
        return client.patch("/api/v1/projects/editor", body, content_type="application/json", headers=headers)

    assert patch({"decision_window_s": 30}).json()["settings"]["decision_window_s"] == 30
    assert patch({"speed": 1}).json()["error"]["field"] == "speed"
    assert patch({"actor": "me"}).json()["error"]["field"] == "actor"


def test_a_key_is_told_once_and_opens_what_it_says(post, client, project):
    made = post("keys", {"name": "new", "scopes": ["read"]}, scope="admin").json()
    headers = {"authorization": f"Bearer {made['key']}"}
    assert client.get("/api/v1/projects", headers=headers).json()[0]["slug"] == "editor"
    listed = client.get("/api/v1/keys", headers=headers)
    assert listed.status_code == 403


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"expires_at": "2999-01-01T00:00:00"}, "expires_at"),
        ({"expires_at": "9999-12-31T23:59:59-12:00"}, "expires_at"),
        ({"items_per_minute": -1}, "items_per_minute"),
        ({"origins": ["http://[x"], "items_per_minute": 60}, "origins"),
    ],
)
def test_a_key_that_cannot_be_is_refused_with_its_field(post, fields, named):
    reply = post("keys", {"name": "k", "scopes": ["ingest"]} | fields, scope="admin")
    assert (reply.status_code, reply.json()["error"]["field"]) == (400, named)


@pytest.mark.parametrize("url", ["http://[x", "http://example.com:99999", "http://a..b"])
def test_a_webhook_to_what_is_no_address_is_refused_with_its_field(post, url):
    reply = post("webhooks", {"name": "h", "url": url, "events": ["alarm.raised"]}, scope="admin")
    assert (reply.status_code, reply.json()["error"]["field"]) == (400, "target")


def test_a_webhook_tells_its_secret_once_and_its_address_is_checked(post, project):
    made = post("webhooks", {"name": "h", "url": "https://93.184.216.34/h", "events": ["alarm.raised"]}, scope="admin")
    assert made.json()["secret"].startswith("whsec_")
    refused = post("webhooks", {"name": "i", "url": "http://127.0.0.1/", "events": ["alarm.raised"]}, scope="admin")
    assert (refused.status_code, refused.json()["error"]["field"]) == (400, "target")


def test_an_email_channel_is_no_webhook(client, api_key, project):
    with tenant(project.id):
        channel = settings_rows.make_channel()
    headers = {"authorization": f"Bearer {api_key('admin')}"}
    assert client.get(f"/api/v1/webhooks/{channel.id}/deliveries", headers=headers).status_code == 404


def test_lists_ask_as_often_for_many_rows_as_for_one(get, project):
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    def count(path: str) -> int:
        with CaptureQueriesContext(connection) as seen:
            assert get(path).status_code == 200
        # A key that was just found is trusted for a second, so how often it is looked up varies.
        return sum(' FROM "' in one["sql"] and "registry_apikey" not in one["sql"] for one in seen)

    with tenant(project.id):
        factories.make_loop(num_turns=2, is_training=False)
    paths = ["turns", "sessions", "checkpoints", "updates", "gates", "policies", "deployments", "flags"]
    few = {path: count(path) for path in paths}
    with tenant(project.id):
        for i in range(30):
            factories.make_flag(factories.make_turn(f"more-{i}", version=1))
    assert {path: count(path) for path in paths} == few


def test_a_checkpoint_is_measured_on_a_benchmark(get, post, loop, project):
    with tenant(project.id):
        evaluate.make_benchmark("asked", size=4, closed=True, tests={"function": "f", "cases": [{"expected": 1}]})
    body = {"benchmark": "asked", "checkpoint": "editor@2", "samples": 2, "temperature": 0.5, "limit": 3, "seconds": 9}
    made = post("benchmark-runs", body)
    assert made.status_code == 201
    run = made.json()
    assert (run["benchmark"], run["state"], run["answers"], run["asked"]) == ("asked@1", "running", 0, 6)
    assert run["mean"] == {"value": None, "low": None, "high": None, "interval": "none", "n": 0}
    assert post(f"benchmark-runs/{run['id']}/cancel", {}).json()["state"] == "cancelled"
    assert post(f"benchmark-runs/{run['id']}/cancel", {}).status_code == 409
    assert post(f"benchmark-runs/{run['id']}/resume", {}).json()["state"] == "running"
    refused = post("benchmark-runs", body | {"temperature": 0})
    assert (refused.status_code, refused.json()["error"]["field"]) == (400, "temperature")
    assert post("benchmark-runs", body | {"benchmark": "none"}).status_code == 404
