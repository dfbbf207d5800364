"""Engines are told what to hold, get exactly the listed files, and say what they hold."""

import asyncio
import json
import threading
import time
from datetime import timedelta

import pytest
from django.conf import settings
from django.test import AsyncClient, Client
from django.utils import timezone

from registry.auth import internal_token
from registry.internal_token import Purpose
from registry.models import Checkpoint
from registry.tenancy import tenant
from rl_online.models import EngineHolding
from rl_online.services import holdings, plans, promotion
from rl_online.weights.manifest import write_manifest

pytestmark = pytest.mark.django_db(transaction=True)

CONFIG = '{"vocab_size": 1000}'


@pytest.fixture(autouse=True)
def forget_policies():
    yield
    holdings.project_of.cache_clear()


@pytest.fixture
def inside() -> dict[str, str]:
    return {"authorization": f"Bearer {internal_token(Purpose.WEIGHTS)}"}


def get(path: str, headers: dict[str, str], **query):
    return Client().get(f"/v1/weights/{path}", query, headers=headers)


def fetch(path: str, headers: dict[str, str]) -> tuple[int, bytes]:
    async def ask() -> tuple[int, bytes]:
        response = await AsyncClient().get(f"/v1/weights/objects/{path}", headers=headers)
        if not response.streaming:
            return response.status_code, response.content
        return response.status_code, b"".join([part async for part in response])

    return asyncio.run(ask())


@pytest.fixture
def folder(policy):
    """Version 1 on disk, with optimizer state beside it and a delta to version 2."""
    import numpy as np
    from safetensors.numpy import save_file

    root = plans.checkpoint_folder(policy.id, 1)
    root.mkdir(parents=True)
    save_file({"w": np.ones(3, np.float32)}, root / "model.safetensors")
    (root / "config.json").write_text(CONFIG)
    write_manifest(root, policy=str(policy.id), version=1)
    (root / "train").mkdir()
    (root / "train" / "optimizer.safetensors").write_bytes(b"secret")
    deltas = plans.deltas_folder(policy.id)
    deltas.mkdir()
    (deltas / "000002-from-000001.gapulp").write_bytes(b"delta")
    (deltas / "000002-from-000001.gapulp.json").write_bytes(b"{}")
    return root


def test_the_serving_checkpoint_is_wanted(policy, inside):
    head = get("head", inside, policy=str(policy.id)).json()
    assert head["policy"] == str(policy.id)
    assert head["want"] == [
        {
            "version": 1,
            "role": "serving",
            "tree_digest": "1" * 64,
            "full": f"/v1/weights/objects/{policy.id}/v000001",
            "delta": None,
        }
    ]


def test_a_candidate_under_proof_is_wanted_with_its_delta(project, policy, inside, folder, judged, sealed, trained):
    judged("accept"), judged("reject")
    trained(sealed())
    wants = {row["version"]: row for row in get("head", inside, policy=str(policy.id)).json()["want"]}
    assert {version: row["role"] for version, row in wants.items()} == {1: "serving", 2: "candidate"}
    path = f"/v1/weights/objects/{policy.id}/deltas/000002-from-000001.gapulp"
    assert wants[2]["delta"] == {"from": 1, "path": path, "size": 5}


def test_what_served_before_is_wanted_until_an_engine_holds_what_serves_now(project, policy, inside, judged, promoted):
    judged("accept"), judged("reject")
    promoted()

    def roles() -> dict[int, str]:
        want = get("head", inside, policy=str(policy.id)).json()["want"]
        return {row["version"]: row["role"] for row in want}

    assert roles() == {2: "serving", 1: "previous"}
    held = [{"version": 2, "tree_digest": f"{2:064d}"}]
    post_held(inside, {"engine": "e1", "policy": str(policy.id), "held": held})
    assert roles() == {2: "serving"}
    with tenant(project.id):
        promotion.roll_back(policy, actor="test", reason="worse")
    assert roles() == {1: "serving", 2: "previous"}


def test_a_long_poll_answers_when_the_head_moves(project, policy, inside, judged, sealed, trained):
    before = get("head", inside, policy=str(policy.id)).json()
    judged("accept"), judged("reject")
    run = sealed()
    answers = []

    def wait() -> None:
        started = time.monotonic()
        reply = get("head", inside, policy=str(policy.id), after=before["etag"], wait="20").json()
        answers.append((time.monotonic() - started, reply))

    poll = threading.Thread(target=wait)
    poll.start()
    time.sleep(1)
    trained(run)
    poll.join()
    ((seconds, reply),) = answers
    assert 0.5 <= seconds < 15
    assert [row["version"] for row in reply["want"]] == [1, 2]


def test_a_long_poll_ends_by_itself_with_the_same_etag(policy, inside):
    etag = get("head", inside, policy=str(policy.id)).json()["etag"]
    assert get("head", inside, policy=str(policy.id), after=etag, wait="0.2").json()["etag"] == etag


def test_files_that_the_manifest_lists_are_given_out(policy, inside, folder):
    assert fetch(f"{policy.id}/v000001/config.json", inside) == (200, CONFIG.encode())
    assert fetch(f"{policy.id}/v000001/MANIFEST.json", inside)[0] == 200
    assert fetch(f"{policy.id}/deltas/000002-from-000001.gapulp", inside) == (200, b"delta")
    assert fetch(f"{policy.id}/deltas/000002-from-000001.gapulp.json", inside) == (200, b"{}")


@pytest.mark.parametrize(
    "path",
    [
        "v000001/train/optimizer.safetensors",
        "v000001/../v000001/config.json",
        "v000001/%2e%2e/v000001/config.json",
        "v000001/..%2f..%2f..%2fsecrets%2finternal",
        "v000001//etc/passwd",
        "v000001/",
        "v000009/config.json",
        "deltas/../v000001/config.json",
        "deltas/secret",
        "train/optimizer.safetensors",
        "config.json",
    ],
)
def test_nothing_else_is(policy, inside, folder, path):
    settings.HOME.secret("internal")
    assert fetch(f"{policy.id}/{path}", inside)[0] == 404


def test_an_engine_says_what_it_holds(project, policy, inside):
    report = {"engine": "e1", "policy": str(policy.id), "held": [{"version": 1, "tree_digest": "1" * 64}]}
    assert post_held(inside, report).status_code == 200
    with tenant(project.id):
        assert holdings.is_held(Checkpoint.objects.get())
    post_held(inside, report | {"held": []})
    with tenant(project.id):
        assert not EngineHolding.objects.exists()


def test_other_weights_under_the_same_name_are_an_error(project, policy, inside):
    post_held(inside, {"engine": "e1", "policy": str(policy.id), "held": [{"version": 1, "tree_digest": "2" * 64}]})
    with tenant(project.id):
        checkpoint = Checkpoint.objects.get()
        assert not holdings.is_held(checkpoint)
        assert holdings.load_error(checkpoint) == f"holds {'2' * 64}, registered is {'1' * 64}"


def test_a_failed_load_is_kept_with_its_reason(project, policy, inside):
    failed = [{"version": 1, "error": "damaged"}]
    post_held(inside, {"engine": "e1", "policy": str(policy.id), "held": [], "failed": failed})
    with tenant(project.id):
        assert holdings.load_error(Checkpoint.objects.get()) == "damaged"


def post_held(headers: dict[str, str], report: dict):
    return Client().post("/v1/weights/held", json.dumps(report), content_type="application/json", headers=headers)


def test_a_report_with_a_wrong_field_is_refused_by_name(policy, inside):
    response = post_held(inside, {"engine": "e1", "policy": "x", "held": []})
    assert (response.status_code, response.json()["error"]["field"]) == (400, "policy")


def test_a_key_sees_its_own_projects_weights_only(project, other_project, policy, folder, api_key):
    ours = {"authorization": f"Bearer {api_key('infer')}"}
    theirs = {"authorization": f"Bearer {api_key('infer', project=other_project)}"}
    assert get("policies", ours).json() == {"policies": [str(policy.id)]}
    assert get("policies", theirs).json() == {"policies": []}
    assert get("head", ours, policy=str(policy.id)).status_code == 200
    assert get("head", theirs, policy=str(policy.id)).status_code == 404
    assert fetch(f"{policy.id}/v000001/config.json", theirs)[0] == 404


def test_only_our_own_engines_say_what_is_held(project, policy, api_key):
    report = {"engine": "e1", "policy": str(policy.id), "held": [{"version": 1, "tree_digest": "1" * 64}]}
    response = post_held({"authorization": f"Bearer {api_key('infer')}"}, report)
    assert (response.status_code, response.json()["error"]["code"]) == (403, "forbidden")
    with tenant(project.id):
        assert not EngineHolding.objects.exists()


def test_what_an_engine_said_long_ago_counts_no_more_until_it_says_so_again(project, policy, inside):
    report = {"engine": "e1", "policy": str(policy.id), "held": [{"version": 1, "tree_digest": "1" * 64}]}
    post_held(inside, report)
    with tenant(project.id):
        checkpoint = Checkpoint.objects.get()
        EngineHolding.objects.update(reported_at=timezone.now() - timedelta(minutes=9))
        assert holdings.is_held(checkpoint)
        EngineHolding.objects.update(reported_at=timezone.now() - timedelta(minutes=11))
        assert not holdings.is_held(checkpoint)
    post_held(inside, report)
    with tenant(project.id):
        assert holdings.is_held(checkpoint)


@pytest.mark.parametrize("start", ["", '{"x": ', '{"held": ', '{"held": [{"x": '])
def test_a_deeply_nested_report_is_a_bad_request(inside, start):
    response = Client().post("/v1/weights/held", start + "[" * 100_000, content_type="application/json", headers=inside)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid")


def test_a_key_without_the_scope_is_refused(policy, api_key):
    assert get("policies", {"authorization": f"Bearer {api_key('ingest')}"}).status_code == 403
    assert get("policies", {}).status_code == 401
    assert get("policies", {"authorization": "Bearer internal.guess"}).status_code == 401
