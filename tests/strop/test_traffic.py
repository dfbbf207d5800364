import asyncio

import pytest

from strop import traffic as module
from strop.traffic import Traffic


def ask(traffic: Traffic, application, *, method: str = "GET", path: str = "/p", messages=(), headers=()) -> list[dict]:
    """Run one request through; returns what was sent."""
    sent = []
    waiting = list(messages)

    async def receive():
        if waiting:
            return waiting.pop(0)
        return await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    async def run():
        scope = {"type": "http", "method": method, "path": path, "headers": list(headers)}
        await asyncio.wait_for(traffic.wrap(application)(scope, receive, send), 5)

    asyncio.run(run())
    return sent


def test_open_requests_are_counted_and_probes_are_not():
    traffic, seen = Traffic(), []

    async def application(scope, receive, send):
        seen.append(traffic.num_open)

    ask(traffic, application)
    ask(traffic, application, path="/readyz")
    assert seen == [1, 0]
    assert traffic.num_open == 0


def test_a_request_that_fails_is_no_longer_open():
    traffic = Traffic()

    async def application(scope, receive, send):
        raise ValueError("page")

    with pytest.raises(ValueError, match="page"):
        ask(traffic, application)
    assert traffic.num_open == 0


def test_a_get_that_waits_for_its_client_is_told_to_end_when_we_hang_up():
    traffic, heard = Traffic(), []

    async def application(scope, receive, send):
        asyncio.get_running_loop().call_later(0.01, traffic.hang_up)
        heard.append(await receive())

    sent = ask(traffic, application)
    assert heard == [{"type": "http.disconnect"}]
    assert (sent[0]["status"], sent[0]["headers"][1]) == (503, (b"retry-after", b"2"))


def test_a_stream_that_has_begun_is_not_answered_twice_when_we_hang_up():
    traffic = Traffic()

    async def application(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        traffic.hang_up()

    assert [message.get("status") for message in ask(traffic, application)] == [200]


@pytest.mark.parametrize("source", [b"eval", b"judge"])
def test_what_our_own_jobs_ask_is_cut_when_we_hang_up(source):
    traffic, heard = Traffic(), []

    async def application(scope, receive, send):
        traffic.hang_up()
        heard.append(await receive())

    ask(traffic, application, method="POST", headers=[(b"x-strop-source", source)])
    assert heard == [{"type": "http.disconnect"}]


def test_a_post_is_not_cut_when_we_hang_up():
    traffic, heard = Traffic(), []
    body = {"type": "http.request", "body": b"x", "more_body": False}

    async def application(scope, receive, send):
        traffic.hang_up()
        heard.append(await receive())

    ask(traffic, application, method="POST", messages=[body])
    assert heard == [body]


def test_liveness_is_lost_only_while_requests_wait_and_nothing_moves(monkeypatch: pytest.MonkeyPatch):
    traffic, stuck = Traffic(), []
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])

    async def application(scope, receive, send):
        now[0] += 200
        stuck.append(traffic.is_stuck)
        await send({"type": "http.response.body"})
        stuck.append(traffic.is_stuck)

    async def no_receive():
        return {}

    async def no_send(message):
        return None

    coroutine = traffic.wrap(application)({"type": "http", "method": "POST", "path": "/p"}, no_receive, no_send)
    with pytest.raises(StopIteration):
        coroutine.send(None)
    now[0] += 200
    assert (stuck, traffic.is_stuck) == ([True, False], False)
