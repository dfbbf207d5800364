"""The web process' server around a small application: what happens on SIGTERM."""

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from strop.local.ports import claim_port
from strop.serve import DRAIN_S

SOON_S = DRAIN_S - 5  # on a machine that has much else to do, and yet not the end of the drain

SCRIPT = """
import asyncio, sys, uvicorn
from strop.serve import Server
from strop.traffic import traffic

async def application(scope, receive, send):
    headers = [(b"content-type", b"text/plain")]
    if scope["path"] == "/readyz":
        status = 503 if traffic.is_draining else 200
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
        return await send({"type": "http.response.body", "body": b""})
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if scope["path"] in ("/live", "/stream"):
        await send({"type": "http.response.body", "body": b"0 ", "more_body": True})
    while scope["path"] == "/live" and (await receive())["type"] != "http.disconnect":
        pass
    if scope["path"] == "/stream":
        await go_on.wait()
    if scope["path"] == "/go-on":
        go_on.set()
    await send({"type": "http.response.body", "body": b"end"})

go_on = asyncio.Event()

Server(uvicorn.Config(traffic.wrap(application), port=int(sys.argv[1]), lifespan="off", log_config=None)).run()
"""


@pytest.fixture
def server() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = claim_port("127.0.0.1", 0)
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(port)])
    wait_for_status(port, 200)
    yield process, port
    process.kill()
    process.wait()


def status(port: int, path: str = "/readyz") -> int | None:
    """Over a connection of its own; None when it is refused."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except ConnectionError:
        return None
    finally:
        connection.close()


def wait_for_status(port: int, wanted: int) -> None:
    deadline = time.monotonic() + 60
    while status(port) != wanted:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_stream_is_finished_after_sigterm_while_new_connections_hear_not_ready(server):
    process, port = server
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("POST", "/stream")
    stream = connection.getresponse()
    first = stream.read(2)
    os.kill(process.pid, signal.SIGTERM)
    wait_for_status(port, 503)
    assert status(port, "/go-on") == 200
    assert first + stream.read() == b"0 end"
    connection.close()
    assert process.wait(SOON_S) == 0


def test_an_endless_live_page_does_not_hold_up_the_end(server):
    process, port = server
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", "/live")
    page = connection.getresponse()
    assert page.read(2) == b"0 "
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(SOON_S) == 0
    assert page.read() == b"end"
    connection.close()


def test_an_idle_server_ends_at_once(server):
    process, _ = server
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(SOON_S) == 0


def test_a_second_signal_ends_it_even_while_a_stream_is_open(server):
    process, port = server
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("POST", "/stream")
    connection.getresponse().read(2)
    os.kill(process.pid, signal.SIGTERM)
    wait_for_status(port, 503)
    os.kill(process.pid, signal.SIGTERM)
    process.wait(SOON_S)
    connection.close()
