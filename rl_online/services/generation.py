"""One request to the engine, driven to its end by a task of its own.

The task collects every choice and records them before anyone learns that they are complete, so that what was answered
is what is stored. A caller that leaves stops the engine, not the recording.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

from rl_online.services.recording import Choice
from rl_online.serving.protocol import Chunk, EngineError, EngineUnavailable, Final, GenRequest

log = logging.getLogger(__name__)

HEARTBEAT_S = 15.0
_running: set[asyncio.Task[None]] = set()  # asyncio keeps only weak references to tasks

Record = Callable[[Sequence[Choice], float, str | None], Awaitable[None]]


class Heartbeat:
    """Nothing has come for a while; the line should be kept open."""


class Generation:
    """`async for event in generation.events()`: chunks as they come; ends when all choices are stored."""

    def __init__(self, engine: Any, request: GenRequest, choices: Sequence[Choice], record: Record) -> None:
        self.choices = list(choices)
        self._events: asyncio.Queue[Chunk | Exception | None] = asyncio.Queue()
        self._drive = asyncio.create_task(self._collect(engine, request))
        self._task = asyncio.create_task(self._run(record))
        _running.add(self._task)
        self._task.add_done_callback(_running.discard)

    async def events(self) -> AsyncGenerator[Chunk | Heartbeat]:
        """Raises EngineError when the engine fails. Leaving early, in whatever way, aborts the request."""
        try:
            while True:
                try:
                    event = await asyncio.wait_for(self._events.get(), HEARTBEAT_S)
                except TimeoutError:
                    yield Heartbeat()
                    continue
                if event is None:
                    return
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            self._drive.cancel()

    async def _collect(self, engine: Any, request: GenRequest) -> None:
        async with aclosing(engine.generate(request)) as events:
            async for event in events:
                self.choices[event.index].add(event)
                if not isinstance(event, Final):
                    self._events.put_nowait(event)

    async def _run(self, record: Record) -> None:
        started = time.monotonic()
        await asyncio.wait({self._drive})
        failure: BaseException | None = None if self._drive.cancelled() else self._drive.exception()
        is_nothing = not any(choice.ids or choice.final for choice in self.choices)
        if not (failure and is_nothing):
            try:
                await record(self.choices, (time.monotonic() - started) * 1000, str(failure) if failure else None)
            except Exception as error:
                log.exception("turn %s could not be recorded", self.choices[0].turn_id)
                failure = error
        if failure is None or isinstance(failure, EngineError):
            self._events.put_nowait(failure)
        else:
            log.error("generation failed", exc_info=failure)
            self._events.put_nowait(EngineUnavailable("the answer could not be stored; try again"))
