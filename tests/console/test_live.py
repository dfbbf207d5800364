"""Streams: what changed is sent once, readers share readings, and the end is told."""

import asyncio
import html
import json
import re

import pytest
from django.test import AsyncClient

from console import live
from console.live import Snapshot, follow
from registry.models import Member
from registry.tenancy import tenant
from tests.console import factories


def snapshot(text: str, *, is_over: bool = False) -> Snapshot:
    return Snapshot(parts={"a": text, "b": "still"}, figures={"curve": {"data": [1]}}, is_over=is_over)


def test_the_first_time_everything_is_sent_and_then_only_what_changed():
    digests: dict[str, str] = {}
    assert snapshot("1").changed(digests) == {"parts": {"a": "1", "b": "still"}, "figures": {"curve": {"data": [1]}}}
    assert snapshot("1").changed(digests) is None
    assert snapshot("2").changed(digests) == {"parts": {"a": "2"}, "figures": {}}


async def collect(response) -> list[str]:
    return [chunk.decode() async for chunk in response.streaming_content]


def test_a_stream_ends_when_its_object_is_over():
    states = iter([snapshot("1"), snapshot("2", is_over=True)])
    events = asyncio.run(collect(follow("k", lambda: next(states), poll_s=0.01)))
    assert [event.split("\n")[0] for event in events] == ["retry: 2000", "event: parts", "event: parts", "event: over"]
    assert json.loads(events[2].split("data: ")[1])["parts"] == {"a": "2"}


def test_a_quiet_stream_says_that_it_is_there(monkeypatch):
    monkeypatch.setattr(live, "HEARTBEAT_S", 0.02)
    states = iter([snapshot("1")] * 5 + [snapshot("1", is_over=True)])
    events = asyncio.run(collect(follow("k", lambda: next(states), poll_s=0.01)))
    assert ": still here\n\n" in events


def test_a_stream_ends_after_its_lifetime_without_saying_that_all_is_over(monkeypatch):
    monkeypatch.setattr(live, "LIFETIME_S", 0.05)
    events = asyncio.run(asyncio.wait_for(collect(follow("k", lambda: snapshot("1"), poll_s=0.01)), timeout=30))
    assert events[0] == "retry: 2000\n\n" and len(events) > 1
    assert not any(event.startswith("event: over") for event in events)


def test_a_hundred_readers_cost_as_much_as_one():
    num_reads = 0

    def read() -> Snapshot:
        nonlocal num_reads
        num_reads += 1
        return snapshot(str(num_reads), is_over=num_reads >= 4)

    async def crowd() -> list[list[str]]:
        return await asyncio.gather(*[collect(follow("page", read, poll_s=0.2)) for _ in range(100)])

    streams = asyncio.run(crowd())
    assert all(events[-1].startswith("event: over") for events in streams)
    assert num_reads <= 8  # 100 readers x 4 readings, had each its own


def test_a_reading_that_fails_ends_the_stream_and_the_next_one_reads_anew():
    def read() -> Snapshot:
        raise RuntimeError("the database is away")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="away"):
            asyncio.run(collect(follow("k", read, poll_s=0.01)))


def test_no_cache_stands_between_a_stream_and_its_reader():
    response = follow("k", lambda: snapshot("1", is_over=True), poll_s=1)
    assert response["Cache-Control"] == "no-cache" and response["Content-Type"] == "text/event-stream"


@pytest.mark.django_db(transaction=True)
def test_who_is_no_member_any_more_is_refused_when_the_stream_is_opened_again(project, viewer, client):
    with tenant(project.id):
        loop = factories.make_loop()
    client.force_login(viewer)
    url = f"/p/editor/updates/{loop.updates[-1].id}/live"
    assert client.get(url)["Content-Type"] == "text/event-stream"
    with tenant(project.id):
        Member.objects.get(user=viewer).delete()
    assert client.get(url).status_code == 404


def first_parts(user, url: str) -> str:
    """The HTML of the first event of a stream."""

    async def read() -> str:
        client = AsyncClient()
        await client.aforce_login(user)
        response = await client.get(url)
        async for chunk in response.streaming_content:
            if chunk.startswith(b"event: parts"):
                return "".join(json.loads(chunk.decode().split("data: ")[1])["parts"].values())
        return ""

    return asyncio.run(read())


@pytest.mark.django_db(transaction=True)
def test_a_stream_writes_times_in_the_zone_of_its_page_and_names_it(project, viewer, client):
    with tenant(project.id):
        run = factories.make_loop().updates[-1]
    client.force_login(viewer)
    page = client.get(f"/p/editor/updates/{run.id}?tz=Asia/Kolkata").content.decode()
    url = html.unescape(re.search('data-live="([^"]+)"', page)[1])
    times = set(re.findall('title="([^"]+)" data-ago', first_parts(viewer, url)))
    assert times and all(time.endswith(" Asia/Kolkata") for time in times)
    assert times <= set(re.findall('title="([^"]+)" data-ago', page)), "the same moments, written the same"


@pytest.mark.django_db(transaction=True)
def test_readers_in_two_zones_do_not_share_a_reading(project, viewer):
    with tenant(project.id):
        run = factories.make_loop().updates[-1]
    for zone in ("Asia/Tokyo", "America/New_York"):
        assert zone in first_parts(viewer, f"/p/editor/updates/{run.id}/live?tz={zone}")
