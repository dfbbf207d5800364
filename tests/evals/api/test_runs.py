"""`POST /v1/runs` over HTTP."""

import json

import pytest
from django.db import OperationalError

from evals.api import wire
from evals.models import Benchmark, EvalRun, Score
from evals.services.benchmarks import create_benchmark
from registry.services import create_key
from registry.tenancy import tenant

pytestmark = pytest.mark.django_db

RESULT = {"problem": "p1", "status": "scored", "score": 1.0, "output": "4", "usage": {"input": 2, "output": 1}}


def run(**fields) -> dict:
    return {"benchmark": "mine", "model": "gpt-x", "results": [RESULT]} | fields


@pytest.fixture
def post(client, api_key):
    def send(body, *, scope="ingest", content_type="application/json", **headers):
        content = body if isinstance(body, bytes | str) else json.dumps(body)
        bearer = {"authorization": f"Bearer {api_key(scope)}"}
        return client.post("/v1/runs", content, content_type=content_type, headers=bearer | headers)

    return send


def stored(project) -> dict[str, int]:
    with tenant(project.id):
        return {table.__name__: table.objects.count() for table in (EvalRun, Score, Benchmark)}


def test_a_run_is_stored_and_answered_with_what_became_of_it(post, project):
    reply = post(run(started_at="2026-01-02T03:04:05Z", benchmark_version="2", settings={"seed": 1}))
    assert reply.status_code == 201, reply.content
    body = reply.json()
    assert (body["benchmark"], body["outcome"]) == ("api:mine@1", "imported")
    assert body["results"] == {"new": 1, "known": 0, "conflicts": 0}
    with tenant(project.id):
        row = EvalRun.objects.get(pk=body["id"])
        assert (row.model, row.scorer, row.state, row.settings) == ("gpt-x", "score", "done", {"seed": 1})
        assert Score.objects.get().usage == {"input": 2, "output": 1}


def test_the_same_body_again_changes_nothing(post, project):
    post(run())
    again = post(run())
    assert (again.status_code, again.json()["outcome"]) == (200, "unchanged")
    assert stored(project) == {"EvalRun": 1, "Score": 1, "Benchmark": 1}


def test_more_results_of_one_run_come_in_parts(post, project):
    post(run(run_id="r"))
    more = post(run(run_id="r", results=[RESULT, RESULT | {"problem": "p2", "score": 0}]))
    assert (more.status_code, more.json()["outcome"]) == (200, "extended")
    assert more.json()["results"] == {"new": 1, "known": 1, "conflicts": 0}


def test_a_checkpoint_of_ours_is_measured_apart_from_what_the_gate_reads(post, project, benchmark_of_ours):
    body = run(model=None, checkpoint="editor@3", benchmark="adding", benchmark_version="1")
    assert post(body).json()["benchmark"] == "api:adding@1"
    with tenant(project.id):
        assert not EvalRun.objects.filter(benchmark=benchmark_of_ours).exists()


@pytest.fixture
def benchmark_of_ours(project):
    from evals.scorers.scorer import ProblemSpec

    return create_benchmark(project.id, "adding", [ProblemSpec(id="p1", prompt="q")])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"benchmark": ""}, "benchmark"),
        ({"results": None}, "results"),
        ({"model": None}, "model"),
        ({"checkpoint": "editor@3"}, "model"),
        ({"model": None, "checkpoint": "editor"}, "checkpoint"),
        ({"started_at": "2026-01-02T03:04:05"}, "started_at"),
        ({"source": {"format": "a b"}}, "source.format"),
        ({"source": {"colour": 1}}, "source.colour"),
        ({"colour": 1}, "colour"),
        ({"results": [RESULT | {"colour": 1}]}, "results[0].colour"),
        ({"results": [RESULT, {"problem": "p"}]}, "results[1].status"),
        ({"results": [RESULT | {"status": "good"}]}, "results[0].status"),
        ({"results": [RESULT | {"score": 1.5}]}, "results[0].score"),
        ({"results": [RESULT | {"score": None}]}, "results[0].score"),
        ({"results": [RESULT | {"score": float("nan")}]}, "results[0].score"),
        ({"results": [RESULT | {"score": "1"}]}, "results[0].score"),
        ({"results": [RESULT | {"repeat": -1}]}, "results[0].repeat"),
        ({"results": [RESULT | {"problem": "x" * 129}]}, "results[0].problem"),
        ({"results": [RESULT | {"usage": {"input": -1}}]}, "results[0].usage.input"),
        ({"results": [RESULT | {"usage": {"tokens": 1}}]}, "results[0].usage.tokens"),
        ({"results": [RESULT | {"cost_usd": -1}]}, "results[0].cost_usd"),
    ],
)
def test_what_is_wrong_is_refused_by_its_field_and_nothing_is_stored(post, project, change, field):
    reply = post(run(**change))
    assert reply.status_code == 400, reply.content
    assert reply.json()["error"]["field"] == field
    assert stored(project) == {"EvalRun": 0, "Score": 0, "Benchmark": 0}


def test_a_body_that_is_no_json_or_of_another_type_is_refused(post):
    assert post("{").status_code == 400
    assert post("[]").status_code == 400
    assert post(run(), content_type="text/plain").status_code == 415


def test_limits_are_said_clearly(post, project, monkeypatch):
    monkeypatch.setattr(wire, "MAX_RESULTS", 1)
    many = post(run(results=[RESULT, RESULT | {"problem": "p2"}]))
    assert (many.status_code, many.json()["error"]["field"]) == (413, "results")
    assert "at most 1 in a request" in many.json()["error"]["message"]
    monkeypatch.setattr(wire, "MAX_REQUEST_BYTES", 50)
    large = post(run())
    assert (large.status_code, large.json()["error"]["code"]) == (413, "too_large")
    assert stored(project)["EvalRun"] == 0


def test_only_a_key_that_may_ingest_opens_it(post, client, project):
    assert client.post("/v1/runs", "{}", content_type="application/json").status_code == 401
    assert post(run(), scope="read").status_code == 403
    assert client.get("/v1/runs").status_code == 405
    with tenant(project.id):
        browser, _ = create_key("page", ["ingest"], actor="t", origins=["https://a.example"], items_per_minute=9)
    reply = client.post(
        "/v1/runs", json.dumps(run()), content_type="application/json",
        headers={"authorization": f"Bearer {browser}", "origin": "https://a.example"},
    )  # fmt: skip
    assert reply.status_code == 403


def test_a_database_that_is_away_is_told_with_a_time_to_come_back(post, monkeypatch):
    def away(*_, **__):
        raise OperationalError("gone")

    monkeypatch.setattr("evals.api.runs.import_run", away)
    reply = post(run())
    assert (reply.status_code, reply["Retry-After"]) == (503, "2")
