"""Server-sent events for pages: rows are polled every second or few and what changed is sent.

A thousand readers of one page cost as much as one: they share each reading, and a reading borrows a database
connection only while it runs. No Redis, so a live page works when it is away. Who may look is asked when a stream
opens, so each ends after a minute: the browser opens the next one, which asks again.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async
from django.db import connection
from django.http import StreamingHttpResponse

HEARTBEAT_S = 15.0
LIFETIME_S = 60.0

_readers = ThreadPoolExecutor(max_workers=4, thread_name_prefix="live")
Readings = dict[Hashable, "asyncio.Task[Snapshot]"]
_readings: WeakKeyDictionary[asyncio.AbstractEventLoop, Readings] = WeakKeyDictionary()


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """A page's moving parts at one moment."""

    parts: dict[str, str]  # id of an element -> its HTML
    figures: dict[str, dict[str, Any] | None]  # name of a chart -> its figure
    is_over: bool = False  # nothing will change any more

    def changed(self, digests: dict[str, str]) -> dict[str, Any] | None:
        """What differs from the digests of what was sent before, which are brought up to date; None for nothing."""
        fresh: dict[str, dict[str, Any]] = {"parts": {}, "figures": {}}
        for kind, items in (("parts", self.parts), ("figures", self.figures)):
            for name, value in items.items():
                digest = hashlib.blake2b(json.dumps(value).encode(), digest_size=8).hexdigest()
                if digests.get(name) != digest:
                    digests[name] = digest
                    fresh[kind][name] = value
        return fresh if fresh["parts"] or fresh["figures"] else None


def follow(key: Hashable, read: Callable[[], Snapshot], *, poll_s: float) -> StreamingHttpResponse:
    """Stream what `read` returns until it is over or a minute has passed; the same `key` shares each reading."""
    response = StreamingHttpResponse(_events(key, read, poll_s), content_type="text/event-stream")
    response["Cache-Control"] = "no-cache"
    response["X-Accel-Buffering"] = "no"
    return response


async def _events(key: Hashable, read: Callable[[], Snapshot], poll_s: float) -> AsyncIterator[str]:
    digests: dict[str, str] = {}
    quiet_s = 0.0
    clock = asyncio.get_running_loop().time
    ends_at = clock() + LIFETIME_S
    yield "retry: 2000\n\n"
    while clock() < ends_at:
        snapshot = await _reading(key, read, poll_s)
        if (fresh := snapshot.changed(digests)) is not None:
            yield f"event: parts\ndata: {json.dumps(fresh)}\n\n"
            quiet_s = 0.0
        elif quiet_s >= HEARTBEAT_S:
            yield ": still here\n\n"
            quiet_s = 0.0
        if snapshot.is_over:
            yield "event: over\ndata: {}\n\n"
            return
        await asyncio.sleep(poll_s)
        quiet_s += poll_s


async def _reading(key: Hashable, read: Callable[[], Snapshot], poll_s: float) -> Snapshot:
    """The reading under way or made just now, else a new one."""
    readings = _readings.setdefault(asyncio.get_running_loop(), {})
    task = readings.get(key)
    if task is None:
        task = readings[key] = asyncio.create_task(_read(read))
        task.add_done_callback(lambda done: _forget_later(readings, key, done, poll_s))
    return await asyncio.shield(task)


def _forget_later(readings: Readings, key: Hashable, done: "asyncio.Task[Snapshot]", poll_s: float) -> None:
    if done.cancelled() or done.exception() is not None:
        readings.pop(key, None)
    else:
        done.get_loop().call_later(poll_s * 0.8, readings.pop, key, None)


async def _read(read: Callable[[], Snapshot]) -> Snapshot:
    return await sync_to_async(_and_return_connection, thread_sensitive=False, executor=_readers)(read)


def _and_return_connection(read: Callable[[], Snapshot]) -> Snapshot:
    try:
        return read()
    finally:
        connection.close()
