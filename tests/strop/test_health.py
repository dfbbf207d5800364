from datetime import timedelta

import pytest
from django.db import connection
from django.db.utils import OperationalError
from django.test import Client
from django.utils import timezone

from jobs.models import Job
from strop.traffic import traffic


@pytest.fixture
def draining(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(traffic, "is_draining", True)


def test_ready_needs_the_database_and_says_that_the_broker_is_away(client: Client, db, settings, tmp_path):
    settings.CELERY_BROKER_URL = f"redis+socket://{tmp_path}/nobody.sock"
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"status": "degraded", "database": True, "broker": False})


def test_ready_and_whole_with_both(client: Client, db, valkey):
    assert client.get("/readyz").json() == {"status": "ok", "database": True, "broker": True}


def test_not_ready_while_stopping_and_still_alive(client: Client, db, draining):
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "stopping")
    assert client.get("/healthz").status_code == 200


def test_not_ready_without_the_database_and_still_alive(client: Client, db, monkeypatch: pytest.MonkeyPatch):
    def refuse():
        raise OperationalError("connection refused")

    with monkeypatch.context() as away:
        away.setattr(connection, "cursor", refuse)
        answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
    assert client.get("/healthz").status_code == 200


def test_not_alive_when_requests_wait_and_nothing_moves(client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(traffic, "open", ["GET /pages"])
    monkeypatch.setattr(traffic, "_moved_at", traffic.started_at - 1e6)
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (503, {"status": "stuck", "open_requests": 1})


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_probes_are_only_read(client: Client, path: str):
    assert client.post(path).status_code == 405


def test_metrics_count_jobs_by_queue_and_state(client: Client, db):
    Job.objects.create(kind="test", queue="judge", run_at=timezone.now() - timedelta(seconds=90))
    lines = client.get("/metrics").content.decode().splitlines()
    assert 'strop_jobs{queue="judge",state="queued"} 1.0' in lines
    age_s = next(line.split()[1] for line in lines if line.startswith('strop_jobs_oldest_seconds{queue="judge"'))
    assert 90 <= float(age_s) < 120


@pytest.mark.parametrize(
    ("token", "sent", "status"), [("t", "Bearer t", 200), ("t", "Bearer u", 404), ("", "Bearer ", 404)]
)
def test_in_production_metrics_are_there_only_for_who_has_the_token(
    client: Client, db, settings, token: str, sent: str, status: int
):
    settings.PRODUCTION, settings.METRICS_TOKEN = True, token
    assert client.get("/metrics", headers={"authorization": sent}).status_code == status
