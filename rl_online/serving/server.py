"""Any engine behind HTTP on a private unix socket: the other end of serving.client.

A raw ASGI application, because the whole surface is a dozen routes for one trusted client. A caller that disconnects
aborts its request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_online.serving import wire
from rl_online.serving.protocol import Chunk, Engine, EngineError, Final, GenRequest

HEARTBEAT_S = 5.0
NDJSON = [(b"content-type", b"application/x-ndjson")]

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodeBody:
    checkpoint: str
    messages: list[dict[str, Any]] | None = None
    prompt: str | None = None
    completion: str | None = None
    tools: list[dict[str, Any]] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodeBody:
    checkpoint: str
    ids: list[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class AbortBody:
    id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadBody:
    checkpoint: str
    folder: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DeltaBody:
    checkpoint: str
    base: str
    delta: str


@dataclass(frozen=True, kw_only=True, slots=True)
class UnloadBody:
    checkpoint: str


class NotFound(EngineError):
    code = "not_found"
    status = 404


class Disconnected(Exception):
    """The caller left before its request was whole."""


class EngineServer:
    """The ASGI application."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", scope["type"]
        route = f"{scope['method']} {scope['path']}"
        try:
            body = await read_body(receive)
            if route == "POST /generate":
                await self._generate(wire.decode(body, GenRequest), receive, send)
            else:
                await respond(send, 200, wire.encode(await self._answer(route, body)))
        except EngineError as error:
            await respond(send, error.status, wire.encode(wire.error_object(error)))
        except Disconnected:
            return

    async def _answer(self, route: str, body: bytes) -> Any:
        engine = self.engine
        match route:
            case "GET /info":
                return await engine.info()
            case "GET /metrics":
                return await engine.metrics()
            case "GET /health":
                return await engine.health()
            case "POST /encode":
                ask = wire.decode(body, EncodeBody)
                return await engine.encode(
                    ask.checkpoint, messages=ask.messages, prompt=ask.prompt, completion=ask.completion, tools=ask.tools
                )
            case "POST /decode":
                tokens = wire.decode(body, DecodeBody)
                return await engine.decode(tokens.checkpoint, tokens.ids)
            case "POST /abort":
                return await engine.abort(wire.decode(body, AbortBody).id)
            case "POST /load_full":
                full = wire.decode(body, LoadBody)
                return await engine.load_full(full.checkpoint, Path(full.folder))
            case "POST /apply_delta":
                delta = wire.decode(body, DeltaBody)
                return await engine.apply_delta(delta.checkpoint, base=delta.base, delta=Path(delta.delta))
            case "POST /unload":
                await engine.unload(wire.decode(body, UnloadBody).checkpoint)
                return True
        raise NotFound(f"no route {route}")

    async def _generate(self, request: GenRequest, receive: Receive, send: Send) -> None:
        """Errors before the first line are an HTTP status, later ones the last line."""
        leaving = asyncio.ensure_future(disconnection(receive))
        is_started = False
        try:
            async with aclosing(lines(self.engine.generate(request), until=leaving)) as sending:
                async for line in sending:
                    if not is_started:
                        await send({"type": "http.response.start", "status": 200, "headers": NDJSON})
                        is_started = True
                    await send({"type": "http.response.body", "body": line, "more_body": True})
        except EngineError as error:
            if not is_started:
                raise
            await send({"type": "http.response.body", "body": wire.encode_event(error), "more_body": True})
        finally:
            leaving.cancel()
        if is_started:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def lines(
    events: AsyncGenerator[Chunk | Final, None], *, until: asyncio.Future[None]
) -> AsyncGenerator[bytes, None]:
    """Encoded events, an empty line where none came for a while. Stops, and closes the events, when `until` is done."""
    upcoming: asyncio.Future[Chunk | Final | None] | None = None
    try:
        while True:
            upcoming = upcoming or asyncio.ensure_future(anext(events, None))
            waiting: set[asyncio.Future[Any]] = {upcoming, until}
            await asyncio.wait(waiting, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
            if until.done():
                return
            if not upcoming.done():
                yield b"\n"
                continue
            event, upcoming = upcoming.result(), None
            if event is None:
                return
            yield wire.encode_event(event)
    finally:
        if upcoming is not None:
            upcoming.cancel()
            await asyncio.wait({upcoming})
        await events.aclose()


async def read_body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def disconnection(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def respond(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
