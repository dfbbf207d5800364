"""Continuous batching on one checkpoint: who joins, one step for all, who leaves.

A Lane is driven by one thread, a step at a time: a step either prefills what waits and fits, or samples one token for
every running choice. Nothing here knows of threads, sockets or other checkpoints (serving.embedded has those).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic

import torch
from torch import Tensor

from rl_online.serving import kv
from rl_online.serving.checkpoints import Held
from rl_online.serving.detokenize import StopCutter, TextStream
from rl_online.serving.protocol import (
    Chunk,
    Final,
    FinishReason,
    GenRequest,
    Timings,
    TokenDetail,
    TokenLogprob,
    Usage,
)
from rl_online.serving.sampling import choice_seed, choose, processed_logprobs

# B rows, V vocabulary, K alternatives

MAX_PREFILL_TOKENS = 4096  # padded prompt tokens of one step: bounds how long running choices wait for newcomers


@dataclass(slots=True, eq=False)
class Stream:
    """A request on its way; `seed` is already settled."""

    request: GenRequest
    seed: int
    arrived_at: float = field(default_factory=monotonic)
    started_at: float | None = None
    is_aborted: bool = False
    choices: list[Choice] = field(default_factory=list)
    unfinished: int = 0

    def __post_init__(self) -> None:
        self.unfinished = self.request.n


@dataclass(slots=True, eq=False)
class Choice:
    """One of the n completions of a stream while it runs."""

    stream: Stream
    index: int
    uniforms: random.Random
    text: TextStream
    cutter: StopCutter
    last_id: int = -1
    num_tokens: int = 0
    first_token_at: float | None = None


@dataclass(slots=True)
class Counters:
    """What the lanes have done since the engine started."""

    choices_finished: int = 0
    choices_aborted: int = 0
    tokens_prompt: int = 0
    tokens_prefilled: int = 0
    tokens_generated: int = 0
    steps: int = 0
    step_rows: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Event:
    """Something to tell the caller of a stream."""

    stream: Stream
    message: Chunk | Final


class Lane:
    """All streams of one checkpoint."""

    def __init__(self, held: Held, *, max_batch: int, counters: Counters) -> None:
        self.held = held
        # Both lists are replaced, never changed in place: other threads count them.
        self.waiting: list[Stream] = []
        self.running: list[Choice] = []
        self._rows: kv.Rows | None = None
        self._max_batch = max_batch
        self._counters = counters

    @property
    def num_waiting(self) -> int:
        return sum(stream.request.n for stream in self.waiting)

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.running

    def step(self) -> list[Event]:
        """One unit of work; whatever it produced, in order."""
        events = self._drop_aborted()
        joining = self._take_joining()
        if joining:
            return events + self._prefill(joining)
        if self.running:
            return events + self._decode()
        return events

    def streams(self) -> list[Stream]:
        return list({id(s): s for s in [*self.waiting, *(choice.stream for choice in self.running)]}.values())

    def clear(self) -> None:
        self.waiting, self.running, self._rows = [], [], None

    def enqueue(self, stream: Stream) -> None:
        self.waiting = [*self.waiting, stream]

    def _drop_aborted(self) -> list[Event]:
        events = []
        aborted = [stream for stream in self.waiting if stream.is_aborted]
        self.waiting = [stream for stream in self.waiting if stream not in aborted]
        for stream in aborted:
            events += [Event(stream, self._abort_unstarted(stream, index)) for index in range(stream.request.n)]
        leaving = [row for row, choice in enumerate(self.running) if choice.stream.is_aborted]
        events += [
            Event(self.running[row].stream, self._finish(self.running[row], FinishReason.ABORT)) for row in leaving
        ]
        self._keep_rows([row for row in range(len(self.running)) if row not in set(leaving)])
        return events

    def _take_joining(self) -> list[Stream]:
        """First come, first served, while rows and prefill budget last; a stream joins with all its choices at once."""
        joining: list[Stream] = []
        free, width = self._max_batch - len(self.running), 0
        for stream in self.waiting:
            width = max(width, len(stream.request.input_ids))
            if stream.request.n > free or (joining and width * (len(joining) + 1) > MAX_PREFILL_TOKENS):
                break
            free -= stream.request.n
            joining.append(stream)
        self.waiting = self.waiting[len(joining) :]
        return joining

    def _prefill(self, joining: Sequence[Stream]) -> list[Event]:
        started = monotonic()
        for stream in joining:
            stream.started_at = started
            stream.choices = [self._start(stream, index) for index in range(stream.request.n)]
        prompts = [stream.request.input_ids for stream in joining]
        logits_BV, rows = kv.prefill(self.held.module, prompts, device=self.held.device)
        owners = [row for row, stream in enumerate(joining) for _ in stream.choices]
        if len(owners) > len(joining):
            logits_BV, rows = logits_BV[owners], kv.select(rows, owners)
        newcomers = [choice for stream in joining for choice in stream.choices]
        self._rows = rows if self._rows is None else kv.join(self._rows, rows)
        first_row = len(self.running)
        self.running = self.running + newcomers
        self._counters.tokens_prompt += sum(len(stream.request.input_ids) * stream.request.n for stream in joining)
        self._counters.tokens_prefilled += sum(map(len, prompts))
        events = self._sample(logits_BV, first_row)
        self._counters.prefill_s += monotonic() - started
        return events

    def _decode(self) -> list[Event]:
        started = monotonic()
        assert self._rows is not None
        last_ids = [choice.last_id for choice in self.running]
        logits_BV = kv.decode(self.held.module, last_ids, self._rows, device=self.held.device)
        self._counters.steps += 1
        self._counters.step_rows += len(self.running)
        events = self._sample(logits_BV, 0)
        self._counters.decode_s += monotonic() - started
        return events

    def _sample(self, logits_BV: Tensor, first_row: int) -> list[Event]:
        """A token for each choice from `first_row` on, by its row of the logits; choices that end leave the batch."""
        choices = self.running[first_row:]
        samplings = [choice.stream.request.sampling for choice in choices]
        logp_BV = processed_logprobs(logits_BV, samplings)
        ids_B = choose(logp_BV, samplings, [choice.uniforms.random() for choice in choices])
        logprobs = logp_BV.gather(1, ids_B.unsqueeze(1)).squeeze(1).tolist()
        events, ended = [], set()
        for row, (choice, token_id) in enumerate(zip(choices, ids_B.tolist(), strict=True)):
            detail = self._detail(choice, token_id, logprobs[row], logp_BV[row])
            chunk, final = self._advance(choice, token_id, logprobs[row], detail)
            events.append(Event(choice.stream, chunk))
            if final is not None:
                events.append(Event(choice.stream, final))
                ended.add(first_row + row)
        self._counters.tokens_generated += len(choices)
        self._keep_rows([row for row in range(len(self.running)) if row not in ended])
        return events

    def _advance(
        self, choice: Choice, token_id: int, logprob: float, detail: TokenDetail | None
    ) -> tuple[Chunk, Final | None]:
        sampling = choice.stream.request.sampling
        choice.last_id = token_id
        choice.num_tokens += 1
        choice.first_token_at = choice.first_token_at or monotonic()
        cut = choice.cutter.push(choice.text.push(token_id))
        reason = None
        if cut.stop is not None or token_id in self.held.end_ids:
            reason = FinishReason.STOP
        elif choice.num_tokens >= sampling.max_tokens:
            reason = FinishReason.LENGTH
        text = cut.text if reason is None or cut.stop is not None else cut.text + choice.cutter.flush()
        chunk = Chunk(
            index=choice.index,
            ids=[token_id],
            logprobs=[logprob],
            version=self.held.name.version,
            text=text,
            details=None if detail is None else [detail],
        )
        return chunk, None if reason is None else self._finish(choice, reason, stop=cut.stop)

    def _detail(self, choice: Choice, token_id: int, logprob: float, logp_V: Tensor) -> TokenDetail | None:
        count = choice.stream.request.top_logprobs
        if count is None:
            return None
        top = torch.topk(logp_V, min(count, logp_V.shape[0]))
        pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        return TokenDetail(
            sampled=self._named(token_id, logprob),
            top=[self._named(token, value) for token, value in pairs if value > -torch.inf],
        )

    def _named(self, token_id: int, logprob: float) -> TokenLogprob:
        vocabulary = self.held.vocabulary
        return TokenLogprob(
            id=token_id,
            logprob=logprob,
            token=vocabulary.name_of(token_id),
            bytes=list(vocabulary.bytes_of(token_id)),
        )

    def _start(self, stream: Stream, index: int) -> Choice:
        return Choice(
            stream=stream,
            index=index,
            uniforms=random.Random(choice_seed(stream.seed, index)),
            text=self.held.vocabulary.stream(),
            cutter=StopCutter(stream.request.sampling.stop),
        )

    def _finish(self, choice: Choice, reason: FinishReason, *, stop: str | None = None) -> Final:
        self._count_end(choice.stream, reason)
        stream, num_tokens = choice.stream, choice.num_tokens
        return Final(
            index=choice.index,
            finish_reason=reason,
            usage=Usage(prompt=len(stream.request.input_ids), completion=num_tokens),
            version_spans=[(0, num_tokens, self.held.name.version)] if num_tokens else [],
            timings=timings(stream, choice.first_token_at),
            stop=stop,
        )

    def _abort_unstarted(self, stream: Stream, index: int) -> Final:
        self._count_end(stream, FinishReason.ABORT)
        usage = Usage(prompt=len(stream.request.input_ids), completion=0)
        return Final(
            index=index,
            finish_reason=FinishReason.ABORT,
            usage=usage,
            version_spans=[],
            timings=timings(stream, None),
        )

    def _count_end(self, stream: Stream, reason: FinishReason) -> None:
        stream.unfinished -= 1
        if reason is FinishReason.ABORT:
            self._counters.choices_aborted += 1
        else:
            self._counters.choices_finished += 1

    def _keep_rows(self, kept: list[int]) -> None:
        if len(kept) == len(self.running):
            return
        self.running = [self.running[row] for row in kept]
        self._rows = kv.select(self._rows, kept) if kept and self._rows is not None else None


def timings(stream: Stream, first_token_at: float | None) -> Timings:
    now = monotonic()
    return Timings(
        queued_ms=1000 * ((stream.started_at or now) - stream.arrived_at),
        ttft_ms=None if first_token_at is None else 1000 * (first_token_at - stream.arrived_at),
        total_ms=1000 * (now - stream.arrived_at),
    )
