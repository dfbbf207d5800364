"""Signals on their way to Strop: each leaves when it is due, several together, some twice, in no particular order."""

import asyncio
import heapq
import time
from collections import Counter
from random import Random
from typing import Any

import httpx

EVERY_S = 0.2
AT_MOST = 500  # items a request
TRIES = 40
PAUSE_S = 0.5  # before a request that was refused for a while is sent again


class Undelivered(Exception):
    """The events endpoint refused for good."""


class Mailbox:
    """Sends through `POST /v1/events`; what is refused for a while is sent again with the same ids."""

    def __init__(self, client: httpx.AsyncClient, *, rng: Random) -> None:
        self.outcomes: Counter[str] = Counter()  # as the endpoint counted them
        self._client = client
        self._rng = rng
        self._waiting: list[tuple[float, int, dict[str, Any]]] = []
        self._number = 0

    def post(self, item: dict[str, Any], *, due_in_s: float) -> None:
        self._number += 1
        heapq.heappush(self._waiting, (time.monotonic() + due_in_s, self._number, item))

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            while items := self._take_due(time.monotonic()):
                await self._send(items)

    async def empty(self, *, within_s: float) -> None:
        """Wait until everything due within `within_s` has left."""
        until = time.monotonic() + within_s
        while self._waiting and self._waiting[0][0] <= until:
            await asyncio.sleep(EVERY_S)

    async def flush(self) -> None:
        """Send what is left, due or not."""
        while items := self._take_due(float("inf")):
            await self._send(items)

    def _take_due(self, now: float) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        while self._waiting and self._waiting[0][0] <= now and len(items) < AT_MOST:
            items.append(heapq.heappop(self._waiting)[2])
        self._rng.shuffle(items)
        return items

    async def _send(self, items: list[dict[str, Any]]) -> None:
        problem = ""
        for _ in range(TRIES):
            try:
                response = await self._client.post("/v1/events", json={"items": items})
            except httpx.TransportError as error:
                problem = repr(error)
            else:
                if response.status_code == 202:
                    self.outcomes.update(response.json()["outcomes"])
                    return
                problem = f"{response.status_code} {response.text[:300]}"
                if response.status_code not in (429, 500, 502, 503):
                    break
            await asyncio.sleep(PAUSE_S)
        raise Undelivered(f"{len(items)} signals: {problem}")
