"""The engine seen from another process: HTTP and NDJSON over a unix socket.

Free of torch, so the gateway and the workers may import it. Implements serving.protocol.Engine; whatever keeps the
engine from answering is EngineUnavailable. One client belongs to one event loop.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx

from rl_online.serving import wire
from rl_online.serving.protocol import (
    Chunk,
    EngineInfo,
    EngineMetrics,
    EngineUnavailable,
    Final,
    GenRequest,
    Health,
    HeldCheckpoint,
    TokenText,
)

T = TypeVar("T")

# The engine sends a heartbeat every 5 s, so half a minute of silence means that it hangs.
STREAM_TIMEOUT = httpx.Timeout(connect=5.0, read=30.0, write=5.0, pool=30.0)
CALL_TIMEOUT = httpx.Timeout(connect=5.0, read=30.0, write=5.0, pool=30.0)
LOAD_TIMEOUT = httpx.Timeout(connect=5.0, read=600.0, write=5.0, pool=30.0)  # a checkpoint is read, hashed and moved


class EngineClient:
    """Use as `async with EngineClient(path) as engine:` or close it with `aclose()`."""

    def __init__(self, socket_path: str | Path) -> None:
        self.socket_path = Path(socket_path)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=16)
        # verify=False only spares loading the CA bundle: there is no TLS on a unix socket.
        transport = httpx.AsyncHTTPTransport(uds=str(socket_path), limits=limits, verify=False)
        self._http = httpx.AsyncClient(transport=transport, base_url="http://engine", trust_env=False)

    async def __aenter__(self) -> EngineClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def info(self) -> EngineInfo:
        return await self._call("GET", "/info", EngineInfo)

    async def metrics(self) -> EngineMetrics:
        return await self._call("GET", "/metrics", EngineMetrics)

    async def health(self) -> Health:
        return await self._call("GET", "/health", Health)

    async def generate(self, request: GenRequest) -> AsyncGenerator[Chunk | Final, None]:
        """Closing the iterator before its end closes the connection, which aborts the request in the engine."""
        finals = 0
        with self._unavailable():
            async with self._http.stream(
                "POST", "/generate", content=wire.encode(request), timeout=STREAM_TIMEOUT
            ) as response:
                if response.status_code != 200:
                    raise wire.parse_error(json.loads(await response.aread()))
                async with aclosing(_lines(response)) as lines:
                    async for line in lines:
                        if line:
                            event = wire.decode_event(line)
                            finals += isinstance(event, Final)
                            yield event
        if finals < request.n:
            raise EngineUnavailable(f"the stream ended after {finals} of {request.n} choices")

    async def encode(
        self,
        checkpoint: str,
        *,
        messages: Sequence[dict[str, Any]] | None = None,
        prompt: str | None = None,
        completion: str | None = None,
        tools: Sequence[dict[str, Any]] | None = None,
    ) -> list[int]:
        texts = {"messages": messages, "prompt": prompt, "completion": completion}
        body = {"checkpoint": checkpoint, **texts, "tools": tools}
        return await self._call("POST", "/encode", list[int], body)

    async def decode(self, checkpoint: str, ids: Sequence[int]) -> list[TokenText]:
        return await self._call("POST", "/decode", list[TokenText], {"checkpoint": checkpoint, "ids": list(ids)})

    async def abort(self, request_id: str) -> bool:
        return await self._call("POST", "/abort", bool, {"id": request_id})

    async def load_full(self, checkpoint: str, folder: Path) -> HeldCheckpoint:
        body = {"checkpoint": checkpoint, "folder": str(folder)}
        return await self._call("POST", "/load_full", HeldCheckpoint, body, timeout=LOAD_TIMEOUT)

    async def apply_delta(self, checkpoint: str, *, base: str, delta: Path) -> HeldCheckpoint:
        body = {"checkpoint": checkpoint, "base": base, "delta": str(delta)}
        return await self._call("POST", "/apply_delta", HeldCheckpoint, body, timeout=LOAD_TIMEOUT)

    async def unload(self, checkpoint: str) -> None:
        await self._call("POST", "/unload", bool, {"checkpoint": checkpoint})

    async def _call(
        self, method: str, path: str, kind: type[T], body: Any = None, *, timeout: httpx.Timeout = CALL_TIMEOUT
    ) -> T:
        content = None if body is None else wire.encode(body)
        with self._unavailable():
            response = await self._http.request(method, path, content=content, timeout=timeout)
        if response.status_code != 200:
            raise wire.parse_error(response.json())
        return wire.decode(response.content, kind)

    @contextmanager
    def _unavailable(self) -> Any:
        try:
            yield
        except httpx.TransportError as error:
            raise EngineUnavailable(f"engine at {self.socket_path.name}: {error or type(error).__name__}") from error


async def _lines(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    """What stands before each newline. httpx's own lines end at U+2028, U+0085 and the like too, inside of strings."""
    rest = b""
    async for block in response.aiter_raw():
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            yield line
