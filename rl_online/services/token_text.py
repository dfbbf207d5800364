"""What the tokens of a stored turn say, asked of the engine in one call; web and workers hold no tokenizer.

All checkpoints of a policy share their tokenizer, so the one that serves is asked, whichever sampled the turn.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings

from registry.models import Deployment
from rl_online.serving.client import EngineClient
from rl_online.serving.protocol import EngineError, EngineUnavailable, TokenText

ANSWER_WITHIN_S = 3.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoded:
    tokens: list[TokenText] | None  # one for each id; None: unknown, and `problem` says why
    problem: str = ""


def token_texts(policy: str | None, ids: Sequence[int]) -> Decoded:
    """Never raises for an engine that is away. Inside a tenant."""
    if policy is None:
        return Decoded(tokens=None, problem="the model's tokenizer is not ours")
    serving = Deployment.objects.filter(policy__name=policy, alias="default").select_related("checkpoint").first()
    if serving is None:
        return Decoded(tokens=None, problem=f"policy {policy} serves nothing that could be asked")
    try:
        return Decoded(tokens=asyncio.run(_ask(f"{serving.policy_id}@{serving.checkpoint.version}", ids)))
    except TimeoutError:
        return Decoded(tokens=None, problem=f"the engine did not answer within {ANSWER_WITHIN_S:.0f} s")
    except EngineUnavailable:
        return Decoded(tokens=None, problem="the engine is away")
    except EngineError as error:
        return Decoded(tokens=None, problem=f"the engine could not be asked: {error.message}")


async def _ask(checkpoint: str, ids: Sequence[int]) -> list[TokenText]:
    async with asyncio.timeout(ANSWER_WITHIN_S), EngineClient(settings.HOME.engine_socket) as engine:
        return await engine.decode(checkpoint, ids)
