"""Short ways to send items as a product would, and to read what became of them."""

import json
from collections.abc import Callable

import pytest
from django.conf import settings


@pytest.fixture
def send(client, api_key, project) -> Callable:
    """send(item, ...) posts items to `project`, or `to` another; `body` sends other bytes, keywords are headers."""
    keys: dict = {}

    def post(*items: dict, body: bytes | None = None, to=project, content_type="application/json", **headers):
        if to.id not in keys:
            keys[to.id] = api_key("ingest", project=to)
        content = json.dumps({"items": list(items)}) if body is None else body
        bearer = {"authorization": f"Bearer {keys[to.id]}"}
        return client.post("/v1/events", content, content_type=content_type, headers=bearer | headers)

    return post


@pytest.fixture
def outcomes(send) -> Callable:
    """outcomes(item, ...) sends and returns the list of outcomes, in order."""

    def of(*items: dict, **options) -> list[str]:
        reply = send(*items, **options)
        assert reply.status_code == 202, reply.content
        return [item["outcome"] for item in reply.json()["items"]]

    return of


@pytest.fixture(autouse=True, scope="session")
def _static_folder(home) -> None:
    settings.STATIC_ROOT.mkdir(parents=True, exist_ok=True)
