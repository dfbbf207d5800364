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
    if scope["path"] == "/live":
        await send({"type": "http.response.body", "body": b"0 ", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
    for number in range(10 if scope["path"] == "/stream" else 0):
        await send({"type": "http.response.body", "body": b"%d " % number, "more_body": True})
        await asyncio.sleep(0.2)
    await send({"type": "http.response.body", "body": b"end"})

Server(uvicorn.Config(traffic.wrap(application), port=int(sys.argv[1]), lifespan="off", log_config=None)).run()
"""


@pytest.fixture
def server() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = claim_port("127.0.0.1", 0)
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(port)])
    deadline = time.monotonic() + 20
    while status(port) != 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield process, port
    process.kill()
    process.wait()


def status(port: int) -> int | None:
    """/readyz over a connection of its own; None when it is refused."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status
    except ConnectionError:
        return None
    finally:
        connection.close()


def test_a_stream_is_finished_after_sigterm_while_new_connections_hear_not_ready(server):
    process, port = server
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", "/stream")
    stream = connection.getresponse()
    first = stream.read(2)
    os.kill(process.pid, signal.SIGTERM)
    time.sleep(0.3)
    assert status(port) == 503
    assert first + stream.read() == b"0 1 2 3 4 5 6 7 8 9 end"
    connection.close()
    assert process.wait(5) == 0


def test_an_endless_live_page_does_not_hold_up_the_end(server):
    process, port = server
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/live")
    page = connection.getresponse()
    assert page.read(2) == b"0 "
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(5) == 0
    assert page.read() == b"end"
    connection.close()


def test_an_idle_server_ends_at_once(server):
    process, _ = server
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(3) == 0


def test_a_second_signal_ends_it_even_while_a_stream_is_open(server):
    process, port = server
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", "/stream")
    connection.getresponse().read(2)
    os.kill(process.pid, signal.SIGTERM)
    time.sleep(0.2)
    asked_at = time.monotonic()
    os.kill(process.pid, signal.SIGTERM)
    process.wait(5)
    connection.close()
    assert time.monotonic() - asked_at < 1.2
