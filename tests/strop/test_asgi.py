"""Which middleware an address goes through."""

import asyncio
import threading

import httpx
import pytest

FOR_PAGES = {"content-security-policy", "x-frame-options"}


@pytest.mark.django_db
def test_pages_pass_all_middleware_and_the_data_plane_only_what_names_the_request(fresh_application):
    from strop.asgi import application

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=application)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return [await client.get(path) for path in ("/sign-in", "/v1/weights/policies", "/v1/nothing-here")]

    page, *data_plane = asyncio.run(ask())
    assert [page.status_code, *(response.status_code for response in data_plane)] == [200, 401, 404]
    assert page.headers.keys() >= FOR_PAGES
    for response in data_plane:
        assert "x-request-id" in response.headers
        assert not FOR_PAGES & response.headers.keys()


@pytest.mark.django_db
def test_items_are_taken_by_a_few_threads_that_stay(fresh_application):
    from strop.asgi import TAKEN_TOGETHER, application

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=application)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            sent = [client.post("/v1/events", json={"items": []}) for _ in range(5 * TAKEN_TOGETHER)]
            return [*await asyncio.gather(*sent), await client.get("/v1/events"), await client.options("/v1/events")]

    *sent, got, asked_before = asyncio.run(ask())
    assert {response.status_code for response in sent} == {401}
    assert len({response.headers["x-request-id"] for response in sent}) == len(sent)
    assert (got.status_code, asked_before.status_code) == (405, 204)
    names = [thread.name for thread in threading.enumerate() if thread.name.startswith("events")]
    assert 0 < len(set(names)) <= TAKEN_TOGETHER
