"""The engine command as a process: its socket, its death, its orderly end, and pulling across both."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from rl_online.serving.client import EngineClient
from rl_online.serving.protocol import Chunk, EngineUnavailable, Final, FinishReason, GenRequest, Sampling
from tests.rl_online.serving import tiny
from tests.rl_online.serving.conftest import EngineProcess
from tests.rl_online.serving.tiny import POLICY
from tests.rl_online.serving.web import SECRET, Web, want

V1 = f"{POLICY}@1"
LONG = GenRequest(id="long", checkpoint=V1, input_ids=[72], sampling=Sampling(max_tokens=500, seed=1))


@pytest.fixture
def own_process(tmp_path):
    process = EngineProcess(tmp_path)
    yield process
    process.process.kill()
    process.process.wait()


async def load(client: EngineClient, tmp_path) -> None:
    await client.load_full(V1, tiny.write_random(tmp_path))


def test_nobody_but_the_owner_may_open_the_socket(engine_process):
    assert stat.S_IMODE(engine_process.socket.stat().st_mode) == 0o600


def test_no_engine_is_unavailable(tmp_path):
    async def go():
        async with EngineClient(tmp_path / "none.sock") as client:
            await client.info()

    with pytest.raises(EngineUnavailable):
        asyncio.run(go())


def test_killing_the_engine_mid_stream_is_unavailable_and_no_end(own_process, tmp_path):
    events = []

    async def go():
        async with own_process.client() as client:
            await load(client, tmp_path)
            async for event in client.generate(LONG):
                events.append(event)
                if len(events) == 5:
                    own_process.process.send_signal(signal.SIGKILL)

    with pytest.raises(EngineUnavailable):
        asyncio.run(go())
    assert len(events) >= 5 and not any(isinstance(event, Final) for event in events)


def test_sigterm_lets_running_streams_end_and_exits_with_0(own_process, tmp_path):
    async def go():
        async with own_process.client() as client:
            await load(client, tmp_path)
            events = []
            async for event in client.generate(LONG):
                events.append(event)
                if len(events) == 5:
                    own_process.process.terminate()
                if len(events) == 20:
                    with pytest.raises(EngineUnavailable):
                        await anext(client.generate(GenRequest(id="late", checkpoint=V1, input_ids=[72])))
            return events

    events = asyncio.run(go())
    assert events[-1].finish_reason in (FinishReason.STOP, FinishReason.LENGTH)
    assert own_process.process.wait(30) == 0
    assert not own_process.socket.exists()


def test_draining_has_a_bound(tmp_path):
    process = EngineProcess(tmp_path, "--drain", "0.2")

    async def go():
        async with process.client() as client:
            await load(client, tmp_path)
            streams = [
                client.generate(
                    GenRequest(id=str(i), checkpoint=V1, input_ids=[72 + i], n=8, sampling=Sampling(max_tokens=400))
                )
                for i in range(3)
            ]
            await anext(streams[0])
            waiting = [asyncio.ensure_future(all_of(stream)) for stream in streams[1:]]
            await asyncio.sleep(0.1)
            process.process.terminate()
            return await all_of(streams[0]), [await one for one in waiting]

    async def all_of(stream):
        return [event async for event in stream]

    events, waited = asyncio.run(go())
    assert process.process.wait(20) == 0
    for of_one in waited:  # on a slow machine its turn may have come before the signal
        begun = {event.index for event in of_one if not isinstance(event, Final)}
        ends = {event.index: event.finish_reason for event in of_one if isinstance(event, Final)}
        assert set(ends) == set(range(8))
        assert all(reason is FinishReason.ABORT for index, reason in ends.items() if index not in begun)
    assert {event.index for event in events if isinstance(event, Final)} == set(range(8))
    assert FinishReason.ABORT in {event.finish_reason for one in waited for event in one if isinstance(event, Final)}


def test_a_second_engine_on_the_same_socket_is_refused(engine_process):
    second = subprocess.run(
        [sys.executable, "-m", "rl_online.commands.engine", "--socket", str(engine_process.socket)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert second.returncode == 2 and "another engine answers" in second.stderr


def test_the_socket_of_a_dead_engine_is_taken_over(own_process, tmp_path):
    own_process.process.kill()
    own_process.process.wait()
    assert own_process.socket.exists()
    heir = EngineProcess(tmp_path)
    try:
        deadline = time.monotonic() + 30

        async def health():
            async with heir.client() as client:
                while True:
                    try:
                        return await client.health()
                    except EngineUnavailable:
                        assert time.monotonic() < deadline
                        await asyncio.sleep(0.05)

        assert not asyncio.run(health()).is_ready  # live, and holding nothing yet
    finally:
        assert heir.stop() == 0


def test_an_idle_engine_uses_no_processor(engine_process):
    clock = os.sysconf("SC_CLK_TCK")

    def ticks() -> int:
        fields = Path(f"/proc/{engine_process.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(1)
    assert (ticks() - before) / clock < 0.05


def test_streams_stay_open_while_the_process_pulls_and_applies_an_update(tmp_path):
    (tmp_path / "token").write_text(SECRET)
    with Web(tmp_path / "published", POLICY) as web:
        parent = tiny.write_random(web.root)
        child, delta = tiny.write_child(parent, version=2, scale=2.0)
        web.say(want(parent))
        process = EngineProcess(
            tmp_path, "--web", web.url, "--token-file", str(tmp_path / "token"), "--cache", str(tmp_path / "cache")
        )
        web.wait_until_held(1)

        async def go():
            async with process.client() as client, aclosing(client.generate(LONG)) as stream:
                first = await anext(stream)
                web.say(want(child, delta=delta.path))
                await asyncio.to_thread(web.wait_until_held, 2)
                new = [
                    event
                    async for event in client.generate(GenRequest(id="n", checkpoint=f"{POLICY}@2", input_ids=[72]))
                ]
                return first, [event async for event in stream], new

        first, rest, new = asyncio.run(go())
        assert process.stop() == 0
    assert {event.version for event in [first, *rest] if isinstance(event, Chunk)} == {1}
    assert rest[-1].version_spans[0][2] == 1 and new[-1].version_spans[0][2] == 2
