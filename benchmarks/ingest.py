"""How many items a second `POST /v1/events` acknowledges, against the same rows written by staging COPY without HTTP.

Two peers write from as many threads with a connection each, in transactions of the same 100 items, typed already:
`copy` writes the same rows (ledger, sessions, turns, payloads, signals, counts, the job): what it saves is HTTP, JSON
and the key. `bare_copy` leaves out ledger, counts and job too, and so could not tell a repeated item from a new one.
All run against one PostgreSQL with fsync on, in turns. Half of the items are turns, half signals.
"""
# ruff: noqa: E402 - the home is chosen before Django reads its settings

import http.client
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import UUID

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "platform")]
os.environ["STROP_HOME"] = tempfile.mkdtemp(prefix="strop-ingest-")
os.environ["DJANGO_SETTINGS_MODULE"] = "strop.settings"
os.environ["STROP_PORT"] = PORT = "8765"
os.environ.setdefault("STROP_LOG_LEVEL", "WARNING")

import django

django.setup()

from django.conf import settings
from django.core.management import call_command
from django.db import connection, connections

from feedback import wire
from feedback.services import staging
from feedback.services.record import record_items
from registry.services import create_key, create_project
from registry.tenancy import tenant
from strop.local import service
from strop.local.postgres import Postgres
from strop.local.valkey import Valkey

BATCH, CONNECTIONS, ROUNDS, BATCHES_A_ROUND = 100, 4, 5, 60
ACCEPTED = f'"outcomes":{{"accepted":{BATCH}}}'.encode()  # of every reply; who reads it all is no part of the claim


def items(name: str) -> list[dict]:
    """A request's worth of turns like those of the demo, each with a signal."""
    at = datetime.now(UTC).isoformat()
    made: list[dict] = []
    for place in range(BATCH // 2):
        turn = f"{name}-{place}"
        made.append(
            {
                "type": "turn", "id": turn, "session": f"{name}-{place % 10}", "at": at, "checkpoint": "editor@3",
                "messages": [{"role": "user", "content": "Complete this line:\ndef add(a, b): return "}],
                "completion": "a + b", "prompt_token_ids": list(range(20)), "completion_token_ids": [3, 4, 5, 6],
                "logprobs": [-0.1, -0.7, -0.2, -0.01], "weight_versions": [[0, 4, 3]], "user": f"u-{place % 17}",
                "sampling": {"temperature": 1.0, "top_p": 1.0, "top_k": 0}, "usage": {"input": 20, "output": 4},
                "latency_ms": 182.5, "finish_reason": "stop", "surface": "completion", "language": "python",
            }
        )  # fmt: skip
        made.append({"type": "signal", "id": f"{turn}-s", "turn": turn, "kind": "accept", "at": at, "user": "u-1"})
    return made


def over_http(key: str, waits_ms: list[float], bodies: list[bytes]) -> None:
    client = http.client.HTTPConnection("127.0.0.1", int(PORT))
    for body in bodies:
        started = time.perf_counter()
        client.request(
            "POST", "/v1/events", body, {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        )
        reply = client.getresponse()
        text = reply.read()
        waits_ms.append(1000 * (time.perf_counter() - started))
        assert reply.status == 202 and ACCEPTED in text, (reply.status, text[:500])
    client.close()


def by_copy(project_id: UUID, requests: list[list[wire.Item]]) -> None:
    for request in requests:
        record_items(project_id, request, received_at=datetime.now(UTC))
    connection.close()


def by_bare_copy(project_id: UUID, requests: list[list[wire.Item]]) -> None:
    now = datetime.now(UTC)
    for request in requests:
        turns = [item for item in request if isinstance(item, wire.TurnItem)]
        signals = [item for item in request if isinstance(item, wire.SignalItem)]
        with tenant(project_id):
            staging.stage(turns, signals)
            staging.insert(project_id, received_at=now, settle_due=now)
    connection.close()


def items_per_s(work: Callable[[list], None], requests: list) -> float:
    """The requests dealt out to as many threads as there are connections; raises what one of them raises."""
    shares = [requests[place::CONNECTIONS] for place in range(CONNECTIONS)]
    started = time.perf_counter()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(work, shares))
    return len(requests) * BATCH / (time.perf_counter() - started)


@contextmanager
def running_product() -> Iterator[None]:
    """PostgreSQL, Valkey and the web process, in a home that is gone afterwards."""
    started: list[tuple[subprocess.Popen[bytes], service.Service]] = []
    web = service.Service(
        name="web", command=[sys.executable, "-m", "strop.serve"], folder=CHECKOUT, is_ready=answers,
        environment={"PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'platform'}"},
    )  # fmt: skip
    try:
        for what in (Postgres.of(settings.HOME).service(), Valkey.of(settings.HOME).service(), web):
            process = service.start(what, output=subprocess.DEVNULL)
            started.append((process, what))
            service.wait_ready(process, what)
            if what.name == "postgres":
                Postgres.of(settings.HOME).ensure_database()
                call_command("migrate", database="owner", verbosity=0)
        yield
    finally:
        connections.close_all()
        for process, what in reversed(started):
            service.stop(process, what)
        for folder in {settings.HOME.root, settings.HOME.data.parent, settings.HOME.sockets}:
            shutil.rmtree(folder, ignore_errors=True)


def answers() -> bool:
    with suppress(OSError):
        client = http.client.HTTPConnection("127.0.0.1", int(PORT), timeout=2)
        client.request("GET", "/healthz")
        return client.getresponse().status == 200
    return False


def measure() -> dict[str, float]:
    """Medians over the rounds, in items a second, and waits of single requests over HTTP in milliseconds."""
    project, peer, bare = (create_project(name, name.title()) for name in ("ingest", "peer", "bare"))
    with tenant(project.id):
        key, _ = create_key("bench", ["ingest"], actor="bench")
    rates: dict[str, list[float]] = {"http": [], "copy": [], "bare_copy": []}
    waits_ms: list[float] = []
    for number in range(ROUNDS + 1):
        requests = [items(f"r{number}-{place}") for place in range(BATCHES_A_ROUND)]
        bodies = [json.dumps({"items": request}).encode() for request in requests]
        typed = [wire.parse_request(body, received_at=datetime.now(UTC), max_age=timedelta(days=1)) for body in bodies]
        if number == 1:  # the first round warmed up
            rates = {name: [] for name in rates}
            waits_ms.clear()
        rates["http"].append(items_per_s(partial(over_http, key, waits_ms), bodies))
        rates["copy"].append(items_per_s(partial(by_copy, peer.id), typed))
        rates["bare_copy"].append(items_per_s(partial(by_bare_copy, bare.id), typed))
    waits_ms.sort()
    found = {name: statistics.median(values) for name, values in rates.items()}
    return found | {"p50_ms": waits_ms[len(waits_ms) // 2], "p99_ms": waits_ms[len(waits_ms) * 99 // 100]}


def main() -> None:
    with running_product():
        found = measure()
    results = {
        "ingest.items_per_s": round(found["http"]),
        "ingest.copy_items_per_s": round(found["copy"]),
        "ingest.bare_copy_items_per_s": round(found["bare_copy"]),
        "ingest.ratio_to_copy": round(found["http"] / found["copy"], 3),
        "ingest.ratio_to_bare_copy": round(found["http"] / found["bare_copy"], 3),
        "ingest.p50_ms": round(found["p50_ms"], 1),
        "ingest.p99_ms": round(found["p99_ms"], 1),
    }
    for name, value in results.items():
        print(f"RESULT {name}={value}")
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    machine = {"cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
    (folder / "ingest.json").write_text(json.dumps({**results, "machine": machine}, indent=1))


if __name__ == "__main__":
    main()
