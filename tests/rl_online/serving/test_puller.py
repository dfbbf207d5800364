"""The puller against a web that serves real checkpoint folders over HTTP."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rl_online.serving import puller as pulling
from rl_online.serving.embedded import EmbeddedEngine
from rl_online.serving.puller import DeltaOffer, Puller, Want, has_usable_delta, in_order
from rl_online.weights.manifest import read_manifest
from tests.rl_online.serving import tiny
from tests.rl_online.serving.tiny import POLICY
from tests.rl_online.serving.web import SECRET, Web, want


def a_want(version: int, role: str, base: int | None = None) -> Want:
    delta = None if base is None else DeltaOffer(base_version=base, path="/d", size=1)
    return Want(version=version, role=role, tree_digest="", full="/f", delta=delta)


def test_what_users_wait_for_is_fetched_first_and_each_version_once():
    wants = [a_want(1, "base"), a_want(3, "candidate"), a_want(2, "serving"), a_want(1, "serving")]
    assert [(w.version, w.role) for w in in_order(wants)] == [(1, "serving"), (2, "serving"), (3, "candidate")]


@pytest.mark.parametrize(("base", "held", "usable"), [(2, {1, 2}, True), (2, {1}, False), (None, {1}, False)])
def test_a_delta_is_usable_when_its_base_is_held(base, held, usable):
    assert has_usable_delta(a_want(3, "serving", base), held) is usable


@pytest.fixture
def web(tmp_path) -> Iterator[Web]:
    with Web(tmp_path / "published", POLICY) as web:
        yield web


@pytest.fixture
def parent(web) -> Path:
    return tiny.write_random(web.root)


@contextmanager
def an_engine_that_pulls(web: Web, tmp_path: Path) -> Iterator[Puller]:
    """An engine with its puller on a thread of its own."""
    (tmp_path / "token").write_text(SECRET)
    started, stop, box = threading.Event(), [], []

    async def live() -> None:
        engine = EmbeddedEngine(max_batch=8)
        puller = Puller(engine, name="e1", web=web.url, secret_file=tmp_path / "token", cache=tmp_path / "cache")
        task = asyncio.create_task(puller.run())
        box.append(puller)
        loop = asyncio.get_running_loop()
        stop.append(lambda: loop.call_soon_threadsafe(task.cancel))
        started.set()
        with suppress(asyncio.CancelledError):
            await task
        await engine.drain(timeout_s=5)

    thread = threading.Thread(target=lambda: asyncio.run(live()))
    thread.start()
    started.wait(10)
    try:
        yield box[0]
    finally:
        stop[0]()
        thread.join(30)


def test_it_holds_what_is_wanted_and_reports_the_publishers_digest(web, parent, tmp_path):
    web.say(want(parent))
    with an_engine_that_pulls(web, tmp_path):
        report = web.wait_until_held(1)
    assert report["engine"] == "e1" and report["policy"] == POLICY and report["failed"] == []
    assert report["held"] == [{"version": 1, "tree_digest": read_manifest(parent).tree_digest}]


def test_an_update_costs_no_more_bytes_than_the_delta_and_its_manifest(web, parent, tmp_path):
    child, delta = tiny.write_child(parent, version=2)
    web.say(want(parent))
    with an_engine_that_pulls(web, tmp_path) as puller:
        web.wait_until_held(1)
        before, served = puller.bytes_fetched, len(web.fetched)
        web.say(want(parent, role="base"), want(child, delta=delta.path))
        report = web.wait_until_held(1, 2)
    allowed = delta.size + delta.manifest_path.stat().st_size
    assert puller.bytes_fetched - before == sum(size for _, size in web.fetched[served:]) <= allowed
    assert report["held"][1]["tree_digest"] == read_manifest(child).tree_digest


def test_what_is_no_longer_wanted_is_dropped_from_memory_and_disk(web, parent, tmp_path):
    child, delta = tiny.write_child(parent, version=2)
    web.say(want(parent))
    with an_engine_that_pulls(web, tmp_path):
        web.wait_until_held(1)
        web.say(want(child, delta=delta.path))
        web.wait_until_held(2)
    assert [path.name for path in (tmp_path / "cache" / POLICY).iterdir()] == ["deltas"]
    assert list((tmp_path / "cache" / POLICY / "deltas").iterdir()) == []


def test_a_damaged_delta_is_reported_and_the_full_checkpoint_taken(web, parent, tmp_path):
    child, delta = tiny.write_child(parent, version=2)
    tiny.flip_byte(delta.path)
    web.say(want(parent))
    with an_engine_that_pulls(web, tmp_path):
        web.wait_until_held(1)
        web.say(want(parent), want(child, delta=delta.path))
        failure = web.wait_for_report(lambda report: report["failed"])
        report = web.wait_until_held(1, 2)
    assert failure["failed"][0]["version"] == 2 and "damaged" in failure["failed"][0]["error"]
    assert report["held"][1]["tree_digest"] == read_manifest(child).tree_digest


def test_a_damaged_checkpoint_is_reported_until_it_is_whole_and_the_old_one_stays(web, parent, tmp_path):
    child, _ = tiny.write_child(parent, version=2)
    tiny.flip_byte(child / "model.safetensors")
    web.say(want(parent))
    with an_engine_that_pulls(web, tmp_path):
        web.wait_until_held(1)
        web.say(want(parent), want(child))
        failure = web.wait_for_report(lambda report: report["failed"])
        assert [row["version"] for row in failure["held"]] == [1]
        tiny.flip_byte(child / "model.safetensors")
        web.wait_until_held(1, 2)


def test_a_folder_that_is_not_the_one_wanted_is_not_held(web, parent, tmp_path):
    web.say(want(parent) | {"tree_digest": "0" * 64})
    with an_engine_that_pulls(web, tmp_path):
        report = web.wait_for_report(lambda report: report["failed"])
    assert report["held"] == [] and "not the one wanted" in report["failed"][0]["error"]


def test_it_goes_on_after_the_web_was_away(web, parent, tmp_path, monkeypatch):
    monkeypatch.setattr(pulling, "WAIT_S", 0.5)
    child, delta = tiny.write_child(parent, version=2)
    web.say(want(parent))
    with an_engine_that_pulls(web, tmp_path):
        web.wait_until_held(1)
        web.__exit__()
        threading.Event().wait(1)
        web.__enter__()
        web.say(want(parent), want(child, delta=delta.path))
        web.wait_until_held(1, 2)


def test_a_restarted_engine_takes_what_its_cache_still_holds(web, parent, tmp_path):
    web.say(want(parent))
    for _ in range(2):
        with an_engine_that_pulls(web, tmp_path):
            web.reports.clear()
            web.wait_until_held(1)
    assert len([path for path, _ in web.fetched if path.endswith("model.safetensors")]) == 1


def test_a_manifest_that_names_a_file_outside_the_folder_writes_nothing_there(web, parent, tmp_path):
    (tmp_path / "published" / POLICY / "outside").write_text("x")
    manifest = tiny.describe_with_extra(parent, "../outside")
    web.say(want(parent) | {"tree_digest": manifest.tree_digest})
    with an_engine_that_pulls(web, tmp_path):
        report = web.wait_for_report(lambda report: report["failed"])
    assert "outside its folder" in report["failed"][0]["error"]
    assert not (tmp_path / "cache" / POLICY / "outside").exists()
