"""Fresh answers of the serving checkpoint to given prompts, drawn by the engine from the whole distribution."""

import asyncio
import hashlib
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass

from django.conf import settings

from registry.errors import Unavailable
from registry.models import Checkpoint
from rl_online.serving.client import EngineClient
from rl_online.serving.protocol import Chunk, EngineError, FinishReason, GenRequest, InvalidRequest, Sampling

TOGETHER = 16


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """At temperature 1, nothing cut from the distribution."""

    token_ids: list[int]  # the end token included
    logprobs: list[float]
    versions: list[int]  # of the weights that drew each


def draw_answers(serving: Checkpoint, prompts: Mapping[str, list[int]], *, max_tokens: int) -> dict[str, Drawn]:
    """One for each prompt that has room for it, by its key, which seeds it too; one that did not end within
    `max_tokens` is left out. Raises Unavailable.
    """
    return asyncio.run(_draw(f"{serving.policy_id}@{serving.version}", prompts, max_tokens)) if prompts else {}


async def _draw(checkpoint: str, prompts: Mapping[str, list[int]], max_tokens: int) -> dict[str, Drawn]:
    gate = asyncio.Semaphore(TOGETHER)
    async with EngineClient(settings.HOME.engine_socket) as engine:

        async def draw(key: str, prompt: list[int]) -> tuple[str, Drawn | None]:
            request = GenRequest(
                id=f"draw-{key}",
                checkpoint=checkpoint,
                input_ids=prompt,
                sampling=Sampling(max_tokens=max_tokens, seed=_seed(key)),
            )
            drawn, ended = Drawn(token_ids=[], logprobs=[], versions=[]), False
            async with gate:
                try:
                    async with aclosing(engine.generate(request)) as events:
                        async for event in events:
                            if isinstance(event, Chunk):
                                drawn.token_ids.extend(event.ids)
                                drawn.logprobs.extend(event.logprobs)
                                drawn.versions.extend([event.version] * len(event.ids))
                            else:
                                ended = event.finish_reason is FinishReason.STOP
                except InvalidRequest:
                    return key, None
            return key, drawn if ended and drawn.token_ids else None

        try:
            found = await asyncio.gather(*(draw(key, prompt) for key, prompt in prompts.items()))
        except EngineError as error:
            raise Unavailable(f"the engine could not draw answers: {error}", retry_after_s=5) from error
    return {key: drawn for key, drawn in found if drawn is not None}


def _seed(key: str) -> int:
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4])
