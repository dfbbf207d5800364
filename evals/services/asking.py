"""Many prompts to one completer at once, from code that is not asynchronous.

The completer lives in an event loop of its own thread; answers come out of `answers` in the order in which they are
ready, so that the caller can score and store while others are still being asked.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Generator, Hashable, Mapping
from typing import Any, Generic, TypeVar

from evals.judging.completer import Completer, Completion, CompletionFailed, Prompt

K = TypeVar("K", bound=Hashable)
Came = Completion | CompletionFailed  # what came of a prompt
LOOK_S = 0.5  # how often `is_over` is asked while nothing comes


class TookTooLong(CompletionFailed):
    """No whole answer within the seconds that each may take."""


def answers(
    completer: Completer,
    prompts: Mapping[K, Prompt],
    sampling: Mapping[str, Any],
    *,
    concurrency: int,
    deadline: float | None = None,
    seeds: Mapping[K, int] | None = None,
    seconds_each: float | None = None,
    is_over: Callable[[], bool] | None = None,
    may_start: Callable[[], bool] = lambda: True,
) -> Generator[tuple[K, Came], None, None]:
    """Ask every prompt, in their order. What has no answer when the loop is left, by `deadline` (time.monotonic()) or
    when `is_over` says so, is cancelled.

    `seeds` go with the sampling of their prompts. An answer that takes longer than `seconds_each`, from the question to
    its last token and tries after failures included, is given up as TookTooLong.
    `may_start` is asked in another thread before each question: once it says no, those that are open are waited for.
    """
    if not prompts:
        return
    ready: queue.SimpleQueue[tuple[K, Came] | BaseException | None] = queue.SimpleQueue()
    loop = asyncio.new_event_loop()
    asking = _Asking(
        completer, prompts, sampling, concurrency=concurrency, ready=ready, seeds=seeds or {},
        seconds_each=seconds_each, may_start=may_start,
    )  # fmt: skip
    thread = threading.Thread(target=asking.run, args=(loop,), name="evals-asking", daemon=True)
    thread.start()
    try:
        while (answer := _next(ready, deadline, is_over)) is not None:
            if isinstance(answer, BaseException):
                raise answer
            yield answer
    finally:
        asking.cancel(loop)
        thread.join()


def _next(
    ready: "queue.SimpleQueue[tuple[K, Came] | BaseException | None]",
    deadline: float | None,
    is_over: Callable[[], bool] | None,
) -> tuple[K, Came] | BaseException | None:
    while True:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        wait = left if is_over is None else LOOK_S if left is None else min(left, LOOK_S)
        try:
            return ready.get(timeout=wait)
        except queue.Empty:
            if is_over is None or is_over() or (deadline is not None and time.monotonic() >= deadline):
                return None


class _Asking(Generic[K]):
    def __init__(
        self,
        completer: Completer,
        prompts: Mapping[K, Prompt],
        sampling: Mapping[str, Any],
        *,
        concurrency: int,
        ready: "queue.SimpleQueue[tuple[K, Came] | BaseException | None]",
        seeds: Mapping[K, int],
        seconds_each: float | None,
        may_start: Callable[[], bool],
    ) -> None:
        self._completer = completer
        self._waiting = list(prompts.items())[::-1]
        self._sampling = sampling
        self._concurrency = concurrency
        self._ready = ready
        self._seeds, self._seconds_each = seeds, seconds_each
        self._may_start = may_start
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
        while self._waiting and self._may_start():
            key, prompt = self._waiting.pop()
            sampling = {**self._sampling, "seed": self._seeds[key]} if key in self._seeds else self._sampling
            try:
                async with asyncio.timeout(self._seconds_each) as limit:
                    completion = await self._completer.complete(prompt, sampling)
                self._ready.put((key, completion))
            except CompletionFailed as failure:
                self._ready.put((key, failure))
            except TimeoutError:
                if not limit.expired():
                    raise
                self._ready.put((key, TookTooLong(f"no whole answer within {self._seconds_each:g} s")))
