"""Many prompts to one completer at once, from code that is not asynchronous.

The completer lives in an event loop of its own thread; answers come out of `answers` in the order in which they are
ready, so that the caller can score and store while others are still being asked.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Generator, Mapping
from typing import Any

from evals.judging.completer import Completer, Completion, CompletionFailed, Prompt

Answer = tuple[str, Completion | CompletionFailed]  # key of the prompt, and what came of it


def answers(
    completer: Completer,
    prompts: Mapping[str, Prompt],
    sampling: Mapping[str, Any],
    *,
    concurrency: int,
    deadline: float | None = None,
) -> Generator[Answer, None, None]:
    """Ask every prompt. What has no answer by `deadline` (time.monotonic()), or when the loop is left, is cancelled."""
    if not prompts:
        return
    ready: queue.SimpleQueue[Answer | BaseException | None] = queue.SimpleQueue()
    loop = asyncio.new_event_loop()
    asking = _Asking(completer, prompts, sampling, concurrency=concurrency, ready=ready)
    thread = threading.Thread(target=asking.run, args=(loop,), name="evals-asking", daemon=True)
    thread.start()
    try:
        while (answer := _next(ready, deadline)) is not None:
            if isinstance(answer, BaseException):
                raise answer
            yield answer
    finally:
        asking.cancel(loop)
        thread.join()


def _next(
    ready: "queue.SimpleQueue[Answer | BaseException | None]", deadline: float | None
) -> Answer | BaseException | None:
    try:
        return ready.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
    except queue.Empty:
        return None


class _Asking:
    def __init__(
        self,
        completer: Completer,
        prompts: Mapping[str, Prompt],
        sampling: Mapping[str, Any],
        *,
        concurrency: int,
        ready: "queue.SimpleQueue[Answer | BaseException | None]",
    ) -> None:
        self._completer = completer
        self._waiting = list(prompts.items())[::-1]
        self._sampling = sampling
        self._concurrency = concurrency
        self._ready = ready
        self._main: asyncio.Task[None] | None = None

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            self._main = loop.create_task(self._ask_all())
            loop.run_until_complete(self._main)
        except asyncio.CancelledError:
            return
        except BaseException as error:
            self._ready.put(error)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
            self._ready.put(None)

    def cancel(self, loop: asyncio.AbstractEventLoop) -> None:
        def stop() -> None:
            if self._main is not None:
                self._main.cancel()

        if not loop.is_closed():
            try:
                loop.call_soon_threadsafe(stop)
            except RuntimeError:  # it closed between the look and the call: everything is asked
                return

    async def _ask_all(self) -> None:
        async with self._completer, asyncio.TaskGroup() as tasks:
            for _ in range(min(self._concurrency, len(self._waiting))):
                tasks.create_task(self._ask_on())

    async def _ask_on(self) -> None:
        while self._waiting:
            key, prompt = self._waiting.pop()
            try:
                self._ready.put((key, await self._completer.complete(prompt, self._sampling)))
            except CompletionFailed as failure:
                self._ready.put((key, failure))
