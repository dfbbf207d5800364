"""A POST that is sent again with its key is answered again and does nothing twice, in each tenant for itself."""

import threading

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from registry.auth import internal_token
from registry.calls import KEEP, forget_old_calls
from registry.internal_token import Purpose
from registry.models import ApiKey, IdempotentCall, NotificationChannel
from registry.tenancy import tenant

HOOK = {"name": "h", "url": "https://93.184.216.34/h", "events": ["update.failed"]}


@pytest.fixture
def post(api_key, project):
    keys = {}

    def send(body, idempotency_key="once", *, project=project, path="webhooks", bearer=None):
        keys.setdefault(project.id, api_key("admin", project=project))
        headers = {"authorization": f"Bearer {bearer or keys[project.id]}", "idempotency-key": idempotency_key}
        return Client().post(f"/api/v1/{path}", body, content_type="application/json", headers=headers)

    return send


def num_webhooks(project) -> int:
    with tenant(project.id):
        return NotificationChannel.objects.count()


def test_the_same_call_is_answered_again_and_done_once(post, project):
    first, second = post(HOOK), post(HOOK)
    assert (first.status_code, second.status_code, num_webhooks(project)) == (201, 201, 1)
    assert second["idempotent-replayed"] == "true" and "idempotent-replayed" not in first
    assert second.json() == {name: value for name, value in first.json().items() if name != "secret"}


@pytest.mark.parametrize("scope", ["ingest", "infer", "read", "train"])
def test_a_key_that_may_not_make_the_call_does_not_read_its_kept_answer(post, api_key, project, scope):
    assert post(HOOK).status_code == 201
    reply = post(HOOK, bearer=api_key(scope))
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, "forbidden")
    assert "idempotent-replayed" not in reply and num_webhooks(project) == 1


def test_an_internal_token_does_not_read_a_kept_answer(post, project):
    assert post(HOOK).status_code == 201
    reply = post(HOOK, bearer=internal_token(Purpose.EVENTS, project=project.id))
    assert reply.status_code == 403 and "idempotent-replayed" not in reply


def test_what_is_told_once_is_not_kept(post, project):
    made = post({"name": "k", "scopes": ["read"]}, path="keys").json()["key"]
    assert "key" not in post({"name": "k", "scopes": ["read"]}, path="keys").json()
    with tenant(project.id):
        assert made.split(".")[1] not in IdempotentCall.objects.get().body
        assert ApiKey.objects.filter(name="k").count() == 1


def test_the_same_key_with_another_body_is_a_conflict(post, project):
    post(HOOK)
    reply = post(HOOK | {"name": "other"})
    assert (reply.status_code, reply.json()["error"]["field"]) == (409, "Idempotency-Key")
    assert num_webhooks(project) == 1


def test_the_same_key_in_two_projects_is_two_calls(post, project, other_project):
    # CASES A.5
    assert post(HOOK).status_code == post(HOOK | {"name": "other"}, project=other_project).status_code == 201
    assert num_webhooks(project) == num_webhooks(other_project) == 1


def test_a_refused_call_may_be_mended_under_the_same_key(post, project):
    assert post(HOOK | {"url": "http://127.0.0.1/"}).status_code == 400
    assert post(HOOK).status_code == 201


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_a_key_that_cannot_be_is_refused(post, project, key):
    assert post(HOOK, key).json()["error"]["field"] == "Idempotency-Key"
    assert num_webhooks(project) == 0


def test_without_a_key_of_the_project_nothing_is_kept(client, project):
    reply = client.post("/api/v1/webhooks", HOOK, content_type="application/json", headers={"idempotency-key": "x"})
    assert reply.status_code == 401


@pytest.mark.django_db(transaction=True)
def test_two_at_once_are_done_once(post, project):
    post({"name": "warm", "scopes": ["read"]}, "warm", path="keys")
    started, statuses = threading.Barrier(2), []

    def send() -> None:
        started.wait()
        try:
            statuses.append(post(HOOK).status_code)
        finally:
            connection.close()

    threads = [threading.Thread(target=send) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [201, 201] and num_webhooks(project) == 1


def test_calls_are_forgotten_after_a_day(post, project):
    post(HOOK)
    with tenant(project.id):
        IdempotentCall.objects.update(created_at=timezone.now() - KEEP)
    forget_old_calls()
    with tenant(project.id):
        assert not IdempotentCall.objects.exists()
