"""The engine that runs a transformers network in its own process: the Engine protocol over the scheduler's thread.

Requests are checked here, so that everything below may trust them. Not here: the socket (serving.server).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from rl_online.serving.checkpoints import Held, Loader
from rl_online.serving.decoding import Event, Lane, Stream
from rl_online.serving.protocol import (
    Capabilities,
    CheckpointName,
    Chunk,
    ContextTooLong,
    EngineError,
    EngineInfo,
    EngineMetrics,
    Final,
    GenRequest,
    Health,
    HeldCheckpoint,
    InvalidRequest,
    LoadRefused,
    TokenText,
)
from rl_online.serving.scheduler import Failure, Scheduler

MAX_TOP_LOGPROBS = 20
MAX_STOPS = 16


class EmbeddedEngine:
    """Create and use it inside one running event loop; end it with `drain`."""

    def __init__(
        self,
        *,
        name: str = "embedded",
        device: str = "cpu",
        max_batch: int = 32,
        max_waiting: int = 256,
    ) -> None:
        self.name = name
        self.max_batch = max_batch
        self.max_waiting = max_waiting
        self._loader = Loader(torch.device(device))
        self._event_loop = asyncio.get_running_loop()
        self._outboxes: dict[str, asyncio.Queue[Chunk | Final | EngineError]] = {}
        self._scheduler = Scheduler(max_batch=max_batch, max_waiting=max_waiting, deliver=self._deliver)
        self._scheduler.start()
        self._one_load = asyncio.Lock()
        self._started_at = monotonic()
        self._requests = 0
        self._requests_refused = 0
        self._loads = 0
        self._load_failures = 0

    async def info(self) -> EngineInfo:
        return EngineInfo(
            name=self.name,
            adapter="embedded",
            device=str(self._loader.device),
            threads=torch.get_num_threads(),
            max_batch=self.max_batch,
            max_waiting=self.max_waiting,
            checkpoints=[described(lane, streams, is_leaving) for lane, streams, is_leaving in self._scheduler.lanes()],
            capabilities=Capabilities(),
        )

    async def generate(self, request: GenRequest) -> AsyncGenerator[Chunk | Final, None]:
        if request.id in self._outboxes or self._scheduler.knows(request.id):
            raise InvalidRequest(f"request {request.id} is running already", field="id")
        check_request(request, self._scheduler.find(request.checkpoint), max_batch=self.max_batch)
        seed = request.sampling.seed
        stream = Stream(request, secrets.randbits(63) if seed is None else seed)
        outbox = self._outboxes[request.id] = asyncio.Queue()
        self._requests += 1
        try:
            self._submit(stream)
            finals = 0
            while finals < request.n:
                message = await outbox.get()
                if isinstance(message, EngineError):
                    raise message
                finals += isinstance(message, Final)
                yield message
        finally:
            del self._outboxes[request.id]
            self._scheduler.abort(request.id)

    async def encode(
        self,
        checkpoint: str,
        *,
        messages: Sequence[dict[str, Any]] | None = None,
        prompt: str | None = None,
        completion: str | None = None,
        tools: Sequence[dict[str, Any]] | None = None,
    ) -> list[int]:
        text = self._scheduler.find(checkpoint).text
        return await asyncio.to_thread(
            text.encode, messages=messages, prompt=prompt, completion=completion, tools=tools
        )

    async def decode(self, checkpoint: str, ids: Sequence[int]) -> list[TokenText]:
        held = self._scheduler.find(checkpoint)
        return await asyncio.to_thread(held.text.decode, ids, size=held.config.vocab_size)

    async def abort(self, request_id: str) -> bool:
        return self._scheduler.abort(request_id)

    async def load_full(self, checkpoint: str, folder: Path) -> HeldCheckpoint:
        name = CheckpointName.parse(checkpoint)
        return await self._load(checkpoint, lambda: self._loader.load_full(name, folder))

    async def apply_delta(self, checkpoint: str, *, base: str, delta: Path) -> HeldCheckpoint:
        name = CheckpointName.parse(checkpoint)
        held = self._scheduler.find(base)
        return await self._load(checkpoint, lambda: self._loader.apply_delta(name, base=held, delta=delta))

    async def unload(self, checkpoint: str) -> None:
        self._scheduler.release(checkpoint)

    async def metrics(self) -> EngineMetrics:
        counters, load = self._scheduler.counters, self._scheduler.load()
        return EngineMetrics(
            uptime_s=monotonic() - self._started_at,
            requests=self._requests,
            choices_finished=counters.choices_finished,
            choices_aborted=counters.choices_aborted,
            requests_refused=self._requests_refused,
            tokens_prompt=counters.tokens_prompt,
            tokens_prefilled=counters.tokens_prefilled,
            tokens_generated=counters.tokens_generated,
            steps=counters.steps,
            step_rows=counters.step_rows,
            prefill_s=counters.prefill_s,
            decode_s=counters.decode_s,
            loads=self._loads,
            load_failures=self._load_failures,
            running=load.running,
            waiting=load.waiting,
            checkpoints=len(self._scheduler.lanes()),
        )

    async def health(self) -> Health:
        is_draining = self._scheduler.is_draining
        return Health(
            is_live=True,
            is_ready=not is_draining and any(not is_leaving for _, _, is_leaving in self._scheduler.lanes()),
            is_draining=is_draining,
            stalled_s=self._scheduler.load().stalled_s,
        )

    async def drain(self, *, timeout_s: float) -> bool:
        """Refuses new requests, waits for the running ones, aborts what is left. True when none had to be aborted."""
        return await asyncio.to_thread(self._scheduler.drain, timeout_s=timeout_s)

    def _submit(self, stream: Stream) -> None:
        try:
            self._scheduler.submit(stream)
        except EngineError:
            self._requests_refused += 1
            raise

    async def _load(self, checkpoint: str, build: Any) -> HeldCheckpoint:
        async with self._one_load:
            try:
                if self._scheduler.holds(checkpoint):
                    raise LoadRefused(f"{checkpoint} is held already; a version is never loaded twice")
                held: Held = await asyncio.to_thread(build)
            except LoadRefused:
                self._load_failures += 1
                raise
            self._scheduler.hold(held)
            self._loads += 1
            return described_held(held, streams=0, is_leaving=False)

    def _deliver(self, happened: list[Event | Failure]) -> None:
        self._event_loop.call_soon_threadsafe(self._hand_out, happened)

    def _hand_out(self, happened: list[Event | Failure]) -> None:
        for item in happened:
            outbox = self._outboxes.get(item.stream.request.id)
            if outbox is not None:
                outbox.put_nowait(item.message if isinstance(item, Event) else item.error)


def check_request(request: GenRequest, held: Held, *, max_batch: int) -> None:
    """Raises InvalidRequest naming the field, or ContextTooLong naming the limit."""
    sampling = request.sampling
    vocabulary_size = held.config.vocab_size
    rules = [
        ("input_ids", bool(request.input_ids), "is empty; send at least one token"),
        ("input_ids", all(0 <= i < vocabulary_size for i in request.input_ids), f"must lie in [0, {vocabulary_size})"),
        ("n", 1 <= request.n <= max_batch, f"must lie in [1, {max_batch}]"),
        ("sampling.temperature", 0 <= sampling.temperature <= 100, "must lie in [0, 100]"),
        ("sampling.top_p", 0 < sampling.top_p <= 1, "must lie in (0, 1]"),
        ("sampling.top_k", sampling.top_k >= 0, "must be 0 (off) or more"),
        ("sampling.max_tokens", sampling.max_tokens >= 1, "must be 1 or more"),
        ("sampling.stop", len(sampling.stop) <= MAX_STOPS and all(sampling.stop), f"allows {MAX_STOPS}, none empty"),
        ("top_logprobs", (request.top_logprobs or 0) in range(MAX_TOP_LOGPROBS + 1), f"goes to {MAX_TOP_LOGPROBS}"),
    ]
    for field, holds, rule in rules:
        if not holds:
            raise InvalidRequest(f"{field} {rule}", field=field)
    needed = len(request.input_ids) + sampling.max_tokens
    if needed > held.context_limit:
        raise ContextTooLong(
            f"{len(request.input_ids)} prompt tokens and max_tokens {sampling.max_tokens} make {needed}; "
            f"{held.name} takes {held.context_limit}",
            field="sampling.max_tokens",
            limit=held.context_limit,
            prompt_tokens=len(request.input_ids),
        )


def described(lane: Lane, streams: int, is_leaving: bool) -> HeldCheckpoint:
    return described_held(lane.held, streams=streams, is_leaving=is_leaving)


def described_held(held: Held, *, streams: int, is_leaving: bool) -> HeldCheckpoint:
    return HeldCheckpoint(
        checkpoint=str(held.name),
        tree_digest=held.tree_digest,
        tokenizer_digest=held.text.digest,
        context_limit=held.context_limit,
        dtype=held.dtype,
        num_parameters=held.num_parameters,
        streams=streams,
        is_leaving=is_leaving,
    )
