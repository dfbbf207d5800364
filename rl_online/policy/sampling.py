"""Drawing one completion from a network, token by token: for trainers and tests. Serving has an engine for this."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import DynamicCache, PreTrainedModel


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    token_ids: list[int]  # the end token included when it was drawn
    logprobs: list[float]  # of the drawn tokens under softmax(logits / temperature); temperature 1 when greedy


@torch.no_grad()
def sample_tokens(
    model: PreTrainedModel,
    prompt: Sequence[int],
    *,
    max_new_tokens: int,
    temperature: float,
    generator: torch.Generator | None = None,
) -> Completion:
    """Greedy at temperature 0, else one draw per step with `generator` (on the CPU). Stops at the end token."""
    cache = DynamicCache(config=model.config)
    end = model.config.eos_token_id
    ends = set(end if isinstance(end, list) else [end])
    ids_1T = torch.tensor([list(prompt)], device=model.device)
    token_ids: list[int] = []
    logprobs: list[float] = []
    for _ in range(max_new_tokens):
        logits_V = model(input_ids=ids_1T, past_key_values=cache, use_cache=True).logits[0, -1].float().cpu()
        logp_V = (logits_V / (temperature or 1.0)).log_softmax(-1)
        if temperature:
            token = int(torch.multinomial(logp_V.exp(), 1, generator=generator))
        else:
            token = int(logp_V.argmax())
        token_ids.append(token)
        logprobs.append(float(logp_V[token]))
        if token in ends:
            break
        ids_1T = torch.tensor([[token]], device=model.device)
    return Completion(token_ids=token_ids, logprobs=logprobs)
