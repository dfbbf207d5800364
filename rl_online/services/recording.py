"""Every choice the gateway sampled becomes a Turn, with all that learning from it needs; partial ones too."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils import timezone

from feedback.services.record import record_turns
from feedback.wire import TurnItem, Usage
from rl_online.serving import protocol
from rl_online.serving.protocol import Chunk, Final, Sampling, TokenDetail

log = logging.getLogger(__name__)

FINISH_ERROR = "error"  # the engine failed in the middle


@dataclass(kw_only=True, slots=True)
class Choice:
    """What one choice has become so far."""

    index: int
    turn_id: str
    text: str = ""
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)  # one for each id
    details: list[TokenDetail] = field(default_factory=list)
    final: Final | None = None  # None: cut off before its end

    def add(self, event: Chunk | Final) -> None:
        if isinstance(event, Final):
            self.final = event
            return
        self.text += event.text
        self.ids += event.ids
        self.logprobs += event.logprobs
        self.versions += [event.version] * len(event.ids)
        self.details += event.details or []


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """What the choices of one request have in common."""

    session: str
    index: int
    at: datetime
    checkpoint: str  # <policy>@<version>
    messages: list[dict[str, Any]] | None
    prompt: str | None
    input_ids: list[int]
    sampling: Sampling
    logprobs_mode: str
    source: str
    user: str | None
    metadata: dict[str, str]
    problem: str | None = None


def record_choices(
    project_id: UUID, exchange: Exchange, choices: Sequence[Choice], *, elapsed_ms: float, failure: str | None
) -> None:
    """Store the turns durably. `failure` is why choices without an end have none; None means the caller left."""
    group = choices[0].turn_id if len(choices) > 1 else None
    items = [_turn(exchange, choice, group=group, elapsed_ms=elapsed_ms, failure=failure) for choice in choices]
    receipt = record_turns(project_id, items, received_at=timezone.now())
    for item in receipt.items:
        if item.outcome not in ("accepted", "duplicate"):
            log.error("turn %s was not recorded: %s %s", item.id, item.outcome, item.message)


def _turn(exchange: Exchange, choice: Choice, *, group: str | None, elapsed_ms: float, failure: str | None) -> TurnItem:
    final = choice.final
    if final is not None:
        finish_reason = final.finish_reason.value
    else:
        finish_reason = FINISH_ERROR if failure else protocol.FinishReason.ABORT.value
    cached = final.usage.cached if final else 0
    return TurnItem(
        id=choice.turn_id,
        session=exchange.session,
        index=exchange.index,
        at=exchange.at,
        checkpoint=exchange.checkpoint,
        group=group,
        problem=exchange.problem,
        messages=exchange.messages,
        prompt=exchange.prompt,
        completion=choice.text,
        prompt_token_ids=exchange.input_ids,
        completion_token_ids=choice.ids,
        logprobs=choice.logprobs,
        weight_versions=spans(choice.versions),
        sampling=_sampling(exchange),
        usage=Usage(
            input=len(exchange.input_ids) - cached,
            cache_read=cached,
            cache_write=0,
            output=len(choice.ids),
            reasoning=0,
        ),
        ttft_ms=final.timings.ttft_ms if final else None,
        latency_ms=final.timings.total_ms if final else elapsed_ms,
        finish_reason=finish_reason,
        error=failure if final is None else None,
        surface=exchange.metadata.get("surface"),
        language=exchange.metadata.get("language"),
        user=exchange.user,
        source=exchange.source,  # type: ignore[arg-type]
        metadata=exchange.metadata,
    )


def spans(versions: Sequence[int]) -> list[tuple[int, int, int]]:
    """Runs of equal versions as (first, end exclusive, version). Example: [3, 3, 4] -> [(0, 2, 3), (2, 3, 4)]."""
    found: list[tuple[int, int, int]] = []
    for index, version in enumerate(versions):
        if found and found[-1][2] == version:
            found[-1] = (found[-1][0], index + 1, version)
        else:
            found.append((index, index + 1, version))
    return found


def _sampling(exchange: Exchange) -> dict[str, Any]:
    sampling = exchange.sampling
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "seed": sampling.seed,
        "max_tokens": sampling.max_tokens,
        "stop": list(sampling.stop),
        "logprobs_mode": exchange.logprobs_mode,
    }
