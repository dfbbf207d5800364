"""The client against a socket that sends exactly these bytes."""

import asyncio
import uuid
from collections.abc import Sequence
from pathlib import Path
from tempfile import gettempdir

import pytest

from rl_online.serving import wire
from rl_online.serving.client import EngineClient
from rl_online.serving.protocol import Chunk, EngineUnavailable, Final, FinishReason, GenRequest, Timings, Usage

TEXT = "a\u2028b\x85c\u2029d"
CHUNK = Chunk(index=0, ids=[5], logprobs=[-0.5], version=1, text=TEXT)
FINAL = Final(
    index=0,
    finish_reason=FinishReason.STOP,
    usage=Usage(prompt=1, completion=1),
    version_spans=[(0, 1, 1)],
    timings=Timings(queued_ms=0, ttft_ms=0, total_ms=0),
)


@pytest.fixture
def socket_path():
    path = Path(gettempdir()) / f"client-{uuid.uuid4().hex[:8]}.sock"  # pytest's folders are too long for a socket
    yield path
    path.unlink(missing_ok=True)


def heard(socket_path: Path, blocks: Sequence[bytes]) -> list[Chunk | Final]:
    """What `generate` yields when the engine answers with these blocks."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for block in blocks:
            writer.write(b"%x\r\n%s\r\n" % (len(block), block))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    async def ask() -> list[Chunk | Final]:
        server = await asyncio.start_unix_server(answer, socket_path)
        async with server, EngineClient(socket_path) as engine:
            return [event async for event in engine.generate(GenRequest(id="r", checkpoint="p@1", input_ids=[1]))]

    return asyncio.run(ask())


def test_a_line_ends_at_a_newline_and_nowhere_else(socket_path):
    assert heard(socket_path, [wire.encode_event(CHUNK) + b"\n" + wire.encode_event(FINAL)]) == [CHUNK, FINAL]


def test_a_line_may_arrive_a_byte_at_a_time(socket_path):
    sent = wire.encode_event(CHUNK) + wire.encode_event(FINAL)
    assert heard(socket_path, [bytes([byte]) for byte in sent]) == [CHUNK, FINAL]


def test_a_stream_that_ends_inside_a_line_is_an_engine_that_went_away(socket_path):
    with pytest.raises(EngineUnavailable, match="after 0 of 1"):
        heard(socket_path, [wire.encode_event(CHUNK), wire.encode_event(FINAL)[:-5]])
