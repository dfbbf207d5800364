"""Items sent as a product sends them, over the door itself, and the jobs they ask for done at once."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from jobs.services import claim_next, run
from registry.tenancy import tenant

START = datetime.now(UTC) - timedelta(minutes=30)


def at(seconds: float = 0.0) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


def turn(id: str, session: str = "s1", *, index: int = 0, seconds: float = 0.0, **fields: Any) -> dict[str, Any]:
    return {
        "type": "turn", "id": id, "session": session, "index": index, "at": at(seconds), "checkpoint": "editor@1",
        "prompt": f"asked {id}", "completion": f"said {id}", "user": "u-1",
    } | fields  # fmt: skip


def signal(id: str, kind: str = "accept", *, turn: str | None = "t1", seconds: float = 3.0, **fields: Any) -> dict:
    return {"type": "signal", "id": id, "turn": turn, "kind": kind, "at": at(seconds), "user": "u-1"} | fields


def send(client, key: str, *items: dict[str, Any], body: str | None = None):
    """The answer of `POST /v1/events`."""
    content = json.dumps({"items": list(items)}) if body is None else body
    headers = {"authorization": f"Bearer {key}"}
    return client.post("/v1/events", content, content_type="application/json", headers=headers)


def work_off(project, *, limit: int = 50) -> None:
    """Do what is due, as the workers would."""
    for _ in range(limit):
        job = claim_next(["default"], "test")
        if job is None:
            return
        run(job)


def inside(project):
    return tenant(project.id)
