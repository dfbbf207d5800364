"""What Strop asks of an inference engine and what an engine answers.

Every request and every load names a checkpoint as `<policy uuid>@<version>`; an engine knows nothing about projects
or aliases. Pure types: no torch, no network. Not here: how they travel (serving.wire, serving.client) and who
computes them (serving.embedded).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Protocol


class FinishReason(StrEnum):
    STOP = "stop"  # an end token or a stop string
    LENGTH = "length"  # max_tokens were sampled
    ABORT = "abort"  # the caller left or the engine shut down


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How tokens are chosen: temperature, then top_k, then top_p.

    Logprobs are those of the distribution sampled from.
    """

    temperature: float = 1.0  # 0 is greedy; its logprobs are those at temperature 1
    top_p: float = 1.0  # in (0, 1]; 1 keeps every token
    top_k: int = 0  # 0 keeps every token
    max_tokens: int = 256
    stop: tuple[str, ...] = ()  # the text is cut before the first of them; the ids keep what was sampled
    seed: int | None = None  # None: drawn by the engine, results then do not repeat


@dataclass(frozen=True, kw_only=True, slots=True)
class GenRequest:
    """One prompt to continue `n` times. `input_ids` come from `encode` with the same checkpoint."""

    id: str  # made by the caller, names the request in `abort`
    checkpoint: str  # `<policy uuid>@<version>`
    input_ids: list[int]
    sampling: Sampling = field(default_factory=Sampling)
    n: int = 1
    top_logprobs: int | None = (
        None  # k: each step's sampled token and k likeliest ones as TokenDetail; None: no details
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenLogprob:
    """One token as OpenAI's `logprobs` shows it."""

    id: int
    logprob: float  # -inf never crosses the wire: excluded tokens are left out
    token: str  # its own text; U+FFFD where it is only part of a character
    bytes: list[int]  # its exact UTF-8 bytes, empty for an end token


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenDetail:
    """The sampled token and the likeliest ones of its step."""

    sampled: TokenLogprob
    top: list[TokenLogprob]  # likeliest first, `top_logprobs` of them at most


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """Newly sampled tokens of one choice.

    `text` is what became certain with them: it lags behind while a character or a possible stop string is incomplete,
    so a chunk may have ids and no text, or (the last one) text and no ids. All text of a choice joined is its
    completion.
    """

    index: int  # which of the n choices
    ids: list[int]  # the sampled end token included
    logprobs: list[float]  # one for each id
    version: int  # of the weights that sampled these ids
    text: str
    details: list[TokenDetail] | None = None  # one for each id when top_logprobs was asked for


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Tokens of one choice. A caller that adds up n choices counts `prompt` once: it was computed once."""

    prompt: int
    completion: int
    cached: int = 0  # part of `prompt` that needed no computing
    drafted: int = 0
    accepted: int = 0  # of `drafted`


@dataclass(frozen=True, kw_only=True, slots=True)
class Timings:
    queued_ms: float  # from arrival to the start of the prefill
    ttft_ms: float | None  # from arrival to the first token; None: none was sampled
    total_ms: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Final:
    """The end of one choice; a stream has one for each choice and ends with the last of them."""

    index: int
    finish_reason: FinishReason
    usage: Usage
    version_spans: list[tuple[int, int, int]]  # (first, end exclusive, version) over the ids of the choice
    timings: Timings
    stop: str | None = None  # the stop string that ended it


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    logprobs: bool = True
    logprobs_mode: str = "processed"
    token_ids: bool = True
    delta: bool = True
    routed_experts: bool = False
    speculative: bool = False
    lora: bool = False
    exact_cache: bool = True  # no token is ever computed from another version's keys and values
    pause_modes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldCheckpoint:
    """Weights an engine holds now."""

    checkpoint: str
    tree_digest: str  # of the tensors in memory, not of the files they came from
    tokenizer_digest: str
    context_limit: int  # prompt + completion, in tokens
    dtype: str
    num_parameters: int
    streams: int  # choices running or waiting on it
    is_leaving: bool  # unloaded by name, kept until its streams end


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineInfo:
    name: str
    adapter: str
    device: str
    threads: int
    max_batch: int  # choices decoded together on one checkpoint
    max_waiting: int  # choices queued before the engine answers busy
    checkpoints: list[HeldCheckpoint]
    capabilities: Capabilities


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineMetrics:
    """Raw counters since the engine started (rates are the reader's business) and three gauges."""

    uptime_s: float
    requests: int
    choices_finished: int
    choices_aborted: int
    requests_refused: int  # answered busy
    tokens_prompt: int
    tokens_prefilled: int  # prompt tokens computed; less than tokens_prompt where n choices shared one
    tokens_generated: int
    steps: int  # decode steps
    step_rows: int  # sum over steps of the choices decoded in it: step_rows / steps is the batch occupancy
    prefill_s: float
    decode_s: float
    loads: int
    load_failures: int
    running: int  # gauge: choices being decoded
    waiting: int  # gauge: choices queued
    checkpoints: int  # gauge


@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    is_live: bool
    is_ready: bool  # accepts requests: holds a checkpoint, is not shutting down
    is_draining: bool
    stalled_s: float  # how long work has been waiting without a step; 0 when idle


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenText:
    """What one token of a sequence says.

    Example: an emoji in two tokens -> [TokenText(text=""), TokenText(text="🙂")]
    """

    text: str  # the characters that became whole with it; of a special token its name
    is_special: bool = False  # no part of the text that users saw


class EngineError(Exception):
    """Anything an engine may answer instead of tokens.

    EngineError
    ├── InvalidRequest          the caller's mistake; `field` names it
    │   └── ContextTooLong      prompt + max_tokens exceed the checkpoint's limit
    ├── UnknownCheckpoint       the engine does not hold it (or no longer)
    ├── EngineBusy              its queue is full; try again after `retry_after_s`
    ├── LoadRefused             weights failed verification; what was served before is served on
    ├── GenerationFailed        the engine failed on this request and lives on
    └── EngineUnavailable       not reachable, shutting down, or gone in the middle of a stream
    """

    code: ClassVar[str] = "engine_error"
    status: ClassVar[int] = 500

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class InvalidRequest(EngineError):
    code = "invalid_request"
    status = 422

    @property
    def field(self) -> str | None:
        return self.details.get("field")


class ContextTooLong(InvalidRequest):
    code = "context_length_exceeded"

    @property
    def limit(self) -> int:
        return self.details["limit"]


class UnknownCheckpoint(EngineError):
    code = "unknown_checkpoint"
    status = 404


class EngineBusy(EngineError):
    code = "busy"
    status = 429

    @property
    def retry_after_s(self) -> float:
        return self.details.get("retry_after_s", 1.0)


class LoadRefused(EngineError):
    code = "load_refused"
    status = 409


class GenerationFailed(EngineError):
    code = "generation_failed"
    status = 500


class EngineUnavailable(EngineError):
    code = "unavailable"
    status = 503


@dataclass(frozen=True, slots=True)
class CheckpointName:
    """`<policy uuid>@<version>`, taken apart."""

    policy: str
    version: int

    @classmethod
    def parse(cls, text: str) -> CheckpointName:
        policy, at, version = text.rpartition("@")
        if not (policy and at and version.isascii() and version.isdigit()):
            raise InvalidRequest(f"checkpoint is {text!r}; write <policy uuid>@<version>", field="checkpoint")
        return cls(policy, int(version))

    def __str__(self) -> str:
        return f"{self.policy}@{self.version}"


class Engine(Protocol):
    """An engine, near or far. Every method raises an EngineError or returns."""

    async def info(self) -> EngineInfo: ...

    def generate(self, request: GenRequest) -> AsyncGenerator[Chunk | Final, None]:
        """Chunks as they are sampled, then one Final for each choice. Closing the iterator early aborts the request."""
        ...

    async def encode(
        self,
        checkpoint: str,
        *,
        messages: Sequence[dict[str, Any]] | None = None,
        prompt: str | None = None,
        completion: str | None = None,
        tools: Sequence[dict[str, Any]] | None = None,
    ) -> list[int]:
        """Token ids of one of these: a chat (by the checkpoint's template, generation prompt added), a raw prompt, or
        what is said after either, which gets none of the tokens that the tokenizer puts around a text.
        """
        ...

    async def decode(self, checkpoint: str, ids: Sequence[int]) -> list[TokenText]:
        """What each id says, one entry an id. Raises InvalidRequest for an id that is no token of the checkpoint."""
        ...

    async def abort(self, request_id: str) -> bool:
        """Ends a request with finish reason abort; False when it is not running."""
        ...

    async def load_full(self, checkpoint: str, folder: Path) -> HeldCheckpoint:
        """Verifies a checkpoint folder on the engine's disk and holds it by this name, which is never reused."""
        ...

    async def apply_delta(self, checkpoint: str, *, base: str, delta: Path) -> HeldCheckpoint:
        """Makes a held checkpoint from a held one; `<delta>.json` is the manifest. All or nothing; the base stays."""
        ...

    async def unload(self, checkpoint: str) -> None:
        """New requests no longer find it; its memory is freed when the last stream on it ends."""
        ...

    async def metrics(self) -> EngineMetrics: ...

    async def health(self) -> Health: ...
