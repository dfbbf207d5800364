"""What the web process is answering right now, whether it moves, and how it ends: finish what was begun, take no more.

Wraps the ASGI application. Readiness, liveness and the orderly stop all read this one count.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
STOPPING = b'{"error": {"code": "stopping", "message": "this server is stopping; ask again", "field": null}}'
OURS = frozenset({b"eval", b"judge"})  # sources of Strop's own jobs, which ask again
STUCK_AFTER_S = 120.0  # requests are open and none has moved for this long


class Traffic:
    """Open requests of this process, probes aside."""

    def __init__(self) -> None:
        self.started_at = time.monotonic()
        self.is_draining = False
        self.open: list[str] = []  # what each asks for, as "GET /v1/weights/head"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hang_up = asyncio.Event()
        self._moved_at = time.monotonic()

    @property
    def num_open(self) -> int:
        return len(self.open)

    @property
    def is_stuck(self) -> bool:
        """Requests wait, and neither a byte was sent nor a request begun or ended for two minutes."""
        return self.num_open > 0 and time.monotonic() - self._moved_at > STUCK_AFTER_S

    def drain(self) -> None:
        """From now on not ready. Answers that are under way are finished; pages' endless streams are hung up on."""
        self.is_draining = True

    def hang_up(self) -> None:
        """Call it in the loop that answers."""
        self._ending().set()

    def _ending(self) -> asyncio.Event:
        """An event belongs to the loop that first waited for it, so each loop has its own."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._hang_up = loop, asyncio.Event()
        return self._hang_up

    def wrap(self, application: Application) -> Application:
        async def counted(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or scope["path"] in PROBES:
                return await application(scope, receive, send)
            has_begun = False

            async def moving(message: Message) -> None:
                nonlocal has_begun
                has_begun = True
                await send(message)
                self._moved_at = time.monotonic()

            asked = f"{scope['method']} {scope['path']}"
            self.open.append(asked)
            self._moved_at = time.monotonic()
            try:
                await application(scope, self._receive(scope, receive), moving)
                if self._hang_up.is_set() and not has_begun:
                    await _say_stopping(send)
            finally:
                self.open.remove(asked)
                self._moved_at = time.monotonic()

        return counted

    def _receive(self, scope: MutableMapping[str, Any], receive: Receive) -> Receive:
        """What may be asked again learns of the end as if its client had left; any other request is let finish."""
        if scope["method"] != "GET" and not _is_ours(scope):
            return receive

        async def until_hung_up() -> Message:
            message = asyncio.ensure_future(receive())
            ended = asyncio.ensure_future(self._ending().wait())
            try:
                await asyncio.wait({message, ended}, return_when=asyncio.FIRST_COMPLETED)
                return await message if message.done() else {"type": "http.disconnect"}
            finally:
                message.cancel()
                ended.cancel()

        return until_hung_up


def _is_ours(scope: MutableMapping[str, Any]) -> bool:
    return any(name == b"x-strop-source" and value in OURS for name, value in scope.get("headers", ()))


async def _say_stopping(send: Send) -> None:
    headers = [(b"content-type", b"application/json"), (b"retry-after", b"2")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": STOPPING})


traffic = Traffic()
