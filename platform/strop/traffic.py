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
STUCK_AFTER_S = 120.0  # requests are open and none has moved for this long


class Traffic:
    """Open requests of this process, probes aside."""

    def __init__(self) -> None:
        self.started_at = time.monotonic()
        self.is_draining = False
        self.num_open = 0
        self._hang_up = asyncio.Event()
        self._moved_at = time.monotonic()

    @property
    def is_stuck(self) -> bool:
        """Requests wait, and neither a byte was sent nor a request begun or ended for two minutes."""
        return self.num_open > 0 and time.monotonic() - self._moved_at > STUCK_AFTER_S

    def drain(self) -> None:
        """From now on not ready. Answers that are under way are finished; pages' endless streams are hung up on."""
        self.is_draining = True

    def hang_up(self) -> None:
        self._hang_up.set()

    def wrap(self, application: Application) -> Application:
        async def counted(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or scope["path"] in PROBES:
                return await application(scope, receive, send)
            self.num_open += 1
            self._moved_at = time.monotonic()
            try:
                await application(scope, self._receive(scope, receive), self._sender(send))
            finally:
                self.num_open -= 1
                self._moved_at = time.monotonic()

        return counted

    def _sender(self, send: Send) -> Send:
        async def moving(message: Message) -> None:
            await send(message)
            self._moved_at = time.monotonic()

        return moving

    def _receive(self, scope: MutableMapping[str, Any], receive: Receive) -> Receive:
        """A GET may be asked again, so it learns of the end as if its client had left; a POST is let finish."""
        if scope["method"] != "GET":
            return receive

        async def until_hung_up() -> Message:
            message = asyncio.ensure_future(receive())
            ended = asyncio.ensure_future(self._hang_up.wait())
            try:
                await asyncio.wait({message, ended}, return_when=asyncio.FIRST_COMPLETED)
                return await message if message.done() else {"type": "http.disconnect"}
            finally:
                message.cancel()
                ended.cancel()

        return until_hung_up


traffic = Traffic()
