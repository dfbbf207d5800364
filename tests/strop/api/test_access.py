"""CASES I.43: every operation of the management API by each kind of key. The table is checked against the document."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from registry.models import Scope
from registry.tenancy import tenant
from strop.api.app import api
from tests.conftest import undone
from tests.console import evaluate, factories, settings_rows

OK, MADE, LATER, GONE, NOT_NOW = 200, 201, 202, 204, 409


@dataclass(frozen=True)
class Row:
    """One operation: which scope opens it and what that key is answered."""

    scope: str
    path: dict[str, str] = field(default_factory=dict)  # names of facts
    body: dict[str, Any] | None = None
    answer: int = OK
    query: str = ""


TABLE = {
    ("get", "/api/v1/projects"): Row("read"),
    ("get", "/api/v1/projects/{slug}"): Row("read", {"slug": "slug"}),
    ("patch", "/api/v1/projects/{slug}"): Row("admin", {"slug": "slug"}, {"decision_window_s": 60}),
    ("get", "/api/v1/keys"): Row("admin"),
    ("post", "/api/v1/keys"): Row("admin", body={"name": "k", "scopes": ["ingest"]}, answer=MADE),
    ("delete", "/api/v1/keys/{prefix}"): Row("admin", {"prefix": "key"}),
    ("get", "/api/v1/webhooks"): Row("admin"),
    ("post", "/api/v1/webhooks"): Row(
        "admin", body={"name": "h", "url": "https://93.184.216.34/h", "events": ["update.failed"]}, answer=MADE
    ),
    ("patch", "/api/v1/webhooks/{id}"): Row("admin", {"id": "webhook"}, {"is_enabled": False}),
    ("delete", "/api/v1/webhooks/{id}"): Row("admin", {"id": "webhook"}, answer=GONE),
    ("post", "/api/v1/webhooks/{id}/test"): Row("admin", {"id": "webhook"}, {}, answer=LATER),
    ("get", "/api/v1/webhooks/{id}/deliveries"): Row("admin", {"id": "webhook"}),
    ("get", "/api/v1/policies"): Row("read"),
    ("post", "/api/v1/policies"): Row("train", body={"name": "second", "source": "smollm2"}, answer=LATER),
    ("get", "/api/v1/policies/{name}"): Row("read", {"name": "policy"}),
    ("patch", "/api/v1/policies/{name}/plan"): Row("train", {"name": "policy"}, {"is_paused": True}),
    ("post", "/api/v1/policies/{name}/roll-back"): Row("train", {"name": "policy"}, {"reason": "worse"}),
    ("get", "/api/v1/imports/{id}"): Row("read", {"id": "import"}),
    ("get", "/api/v1/checkpoints"): Row("read"),
    ("get", "/api/v1/checkpoints/{name}"): Row("read", {"name": "checkpoint"}),
    ("post", "/api/v1/checkpoints/{name}/promote"): Row("train", {"name": "checkpoint"}, {"reason": "looked at it"}),
    ("post", "/api/v1/checkpoints/{name}/reject"): Row("train", {"name": "checkpoint"}, {"reason": "worse"}),
    ("get", "/api/v1/updates"): Row("read"),
    ("post", "/api/v1/updates"): Row("train", body={"policy": "editor"}, answer=NOT_NOW),  # one is under way
    ("get", "/api/v1/updates/{id}"): Row("read", {"id": "update"}),
    ("post", "/api/v1/updates/{id}/cancel"): Row("train", {"id": "update"}, {}),
    ("post", "/api/v1/benchmark-runs"): Row(
        "train", body={"benchmark": "asked", "checkpoint": "editor@3", "scorer": "executability"}, answer=MADE
    ),
    ("get", "/api/v1/benchmark-runs/{id}"): Row("read", {"id": "running"}),
    ("post", "/api/v1/benchmark-runs/{id}/cancel"): Row("train", {"id": "running"}, {}),
    ("post", "/api/v1/benchmark-runs/{id}/resume"): Row("train", {"id": "cancelled"}, {}),
    ("get", "/api/v1/gates"): Row("read"),
    ("get", "/api/v1/gates/{id}"): Row("read", {"id": "gate"}),
    ("get", "/api/v1/deployments"): Row("read"),
    ("get", "/api/v1/sessions"): Row("read"),
    ("get", "/api/v1/sessions/{id}"): Row("read", {"id": "session"}),
    ("get", "/api/v1/turns"): Row("read"),
    ("get", "/api/v1/turns/{id}"): Row("read", {"id": "turn"}),
    ("get", "/api/v1/flags"): Row("read"),
    ("get", "/api/v1/reports/accept-share"): Row("read"),
    ("get", "/api/v1/alarms"): Row("read"),
}
WITH_OBJECT = [key for key, row in TABLE.items() if row.path]


@pytest.fixture
def facts(project):
    with tenant(project.id):
        loop = factories.make_loop()
        benchmark = evaluate.make_benchmark("asked", size=2, closed=True)
        asked = {
            state: evaluate.make_run(benchmark, "editor@2", state=state, asked_by="ada").pk
            for state in ("running", "cancelled")
        }
        return {
            "slug": "editor",
            **asked,
            "policy": "editor",
            "checkpoint": "editor@3",
            "update": loop.updates[-1].id,
            "gate": loop.checkpoints[1].gate_reports.get().pk,
            "session": "edit-0",
            "turn": loop.turns[0].turn_id,
            "key": settings_rows.make_facts(project)["key"],
            "webhook": settings_rows.make_channel("hook", kind="webhook", target="https://93.184.216.34/h").id,
            "import": settings_rows.make_import("third", "storing").id,
        }


@pytest.fixture
def call(client, facts):
    def send(key, operation: tuple[str, str], **headers: str):
        method, path = operation
        row = TABLE[operation]
        url = path.format(**{name: facts[of] for name, of in row.path.items()})
        headers |= {"authorization": f"Bearer {key}"} if key else {}
        if row.body is None:
            return getattr(client, method)(url, headers=headers)
        return getattr(client, method)(url, row.body, content_type="application/json", headers=headers)

    return send


def operations() -> set[tuple[str, str]]:
    paths = api.get_openapi_schema()["paths"]
    return {(method, path) for path, found in paths.items() if path.startswith("/api/") for method in found}


def test_every_operation_has_a_row():
    assert operations() == set(TABLE)


def ask_each(call, key, among=TABLE):
    """(operation, answer) of each; what it changed is undone before the next."""
    for operation in among:
        with undone():
            yield operation, call(key, operation)


@pytest.mark.parametrize("scope", Scope.values)
def test_a_scope_opens_its_operations_and_no_others_unless_it_is_admin(call, api_key, scope):
    for operation, reply in ask_each(call, api_key(scope)):
        row = TABLE[operation]
        if scope == row.scope:
            assert reply.status_code == row.answer, operation
        elif scope != "admin":
            assert (reply.status_code, reply.json()["error"]["code"]) == (403, "forbidden"), operation


@pytest.mark.parametrize("key", [None, "strop_0123456789.secret", "internal.secret"])
def test_nobody_and_a_key_that_opens_nothing_are_refused(call, key):
    for operation, reply in ask_each(call, key):
        assert (reply.status_code, reply.json()["error"]["code"]) == (401, "unauthorized"), operation
        assert reply.json()["error"]["request_id"] == reply["x-request-id"]


def test_what_belongs_to_another_project_is_not_found(call, api_key, other_project):
    for operation, reply in ask_each(call, api_key("admin", project=other_project), WITH_OBJECT):
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found"), operation


def test_a_list_shows_nothing_of_another_project(call, api_key, other_project):
    lists = [key for key, row in TABLE.items() if key[0] == "get" and not row.path]
    for operation, reply in ask_each(call, api_key("admin", project=other_project), lists):
        for ours in ("edit-0", "editor", "hook", "spare"):
            assert f'"{ours}"' not in reply.content.decode(), operation


def test_a_session_of_the_console_opens_nothing_here(call, client, owner):
    client.force_login(owner)
    assert {operation: reply.status_code for operation, reply in ask_each(call, None)} == dict.fromkeys(TABLE, 401)
