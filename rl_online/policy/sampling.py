"""Drawing completions from a network, token by token: for trainers and tests. Serving has an engine for this."""

# B rows, T their length, V vocabulary

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from rl_online.policy.end_tokens import all_ends

MAX_ROWS = 64  # drawn together
MAX_PLACES = 65_536  # of all rows drawn together, padding and new tokens too: bounds the memory of keys and values


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    token_ids: list[int]  # the end token included when it was drawn
    logprobs: list[float]  # of the drawn tokens under softmax(logits / temperature); temperature 1 when greedy


def sample_tokens(
    model: PreTrainedModel,
    prompt: Sequence[int],
    *,
    max_new_tokens: int,
    temperature: float,
    generator: torch.Generator | None = None,
) -> Completion:
    """`sample_batch` of one prompt."""
    (drawn,) = sample_batch(
        model, [prompt], max_new_tokens=max_new_tokens, temperature=temperature, generator=generator, can_pad=True
    )
    return drawn


@torch.no_grad()
def sample_batch(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    temperature: float,
    generator: torch.Generator | None = None,
    can_pad: bool,
) -> list[Completion]:
    """One completion for each prompt, in their order: greedy at temperature 0, else drawn by `generator` (on the CPU).

    Each prompt has random numbers of its own, so apart from rounding its completion does not depend on the others.
    `can_pad`: whether the model heeds places and masks (`can_pack`); else only prompts of one length share a batch.
    """
    uniform_NT = torch.rand(len(prompts), max_new_tokens, generator=generator, dtype=torch.float64)
    found: dict[int, Completion] = {}
    for group in _groups(prompts, max_new_tokens=max_new_tokens, can_pad=can_pad):
        drawn = _draw([prompts[i] for i in group], model, uniform_NT[group], temperature=temperature)
        found |= dict(zip(group, drawn, strict=True))
    return [found[index] for index in range(len(prompts))]


def _groups(prompts: Sequence[Sequence[int]], *, max_new_tokens: int, can_pad: bool) -> list[list[int]]:
    """Indices of the prompts drawn together, the longest first; one that is too long by itself is drawn alone."""
    groups: list[list[int]] = []
    for index in sorted(range(len(prompts)), key=lambda one: -len(prompts[one])):
        longest = len(prompts[groups[-1][0]]) if groups else 0
        fits = groups and len(groups[-1]) < min(MAX_ROWS, MAX_PLACES // max(1, longest + max_new_tokens))
        if fits and (can_pad or longest == len(prompts[index])):
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def _draw(
    prompts: Sequence[Sequence[int]], model: PreTrainedModel, uniform_BT: Tensor, *, temperature: float
) -> list[Completion]:
    """Prompts padded on the left, so that all their next tokens stand in one column."""
    longest = max(map(len, prompts))
    ids_BT = torch.zeros(len(prompts), longest, dtype=torch.int64, device=model.device)
    mask_BT = torch.zeros_like(ids_BT)
    for row, prompt in enumerate(prompts):
        ids_BT[row, longest - len(prompt) :] = torch.tensor(list(prompt))
        mask_BT[row, longest - len(prompt) :] = 1
    place_BT = (mask_BT.cumsum(-1) - 1).clamp(min=0)
    inputs: dict[str, Any] = (
        {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}
    )
    if longest > min(map(len, prompts)):
        inputs |= {"attention_mask": mask_BT, "position_ids": place_BT}
    generation = model.generation_config
    ends = all_ends(model.config.eos_token_id, generation.eos_token_id if generation else None)
    ends_E = torch.tensor(ends, dtype=torch.int64, device=model.device)
    cache = DynamicCache(config=model.config)
    tokens, logprobs = [], []
    has_ended_B = torch.zeros(len(prompts), dtype=torch.bool, device=model.device)
    for uniform_B in uniform_BT.to(model.device).unbind(1):
        logits_BV = model(input_ids=ids_BT, past_key_values=cache, use_cache=True, **inputs).logits[:, -1].float()
        logp_BV = (logits_BV / (temperature or 1.0)).log_softmax(-1)
        token_B = _invert(logp_BV, uniform_B) if temperature else logp_BV.argmax(-1)
        tokens.append(token_B)
        logprobs.append(logp_BV.gather(-1, token_B.unsqueeze(-1)).squeeze(-1))
        has_ended_B |= torch.isin(token_B, ends_E)
        if has_ended_B.all():
            break
        ids_BT = token_B.unsqueeze(-1)
        if "attention_mask" in inputs:
            mask_BT = torch.nn.functional.pad(mask_BT, (0, 1), value=1)
            place_BT = place_BT[:, -1:] + 1
            inputs |= {"attention_mask": mask_BT, "position_ids": place_BT}
    if not tokens:
        return [Completion(token_ids=[], logprobs=[]) for _ in prompts]
    rows = zip(torch.stack(tokens, -1).tolist(), torch.stack(logprobs, -1).tolist(), strict=True)
    return [_until_end(ids, values, set(ends)) for ids, values in rows]


def _invert(logp_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """The first token whose cumulative probability exceeds the row's uniform number in [0, 1)."""
    upto_BV = logp_BV.double().exp().cumsum(-1)
    target_B1 = (uniform_B * upto_BV[:, -1]).unsqueeze(-1)
    return torch.searchsorted(upto_BV, target_B1, right=True).squeeze(-1).clamp(max=logp_BV.shape[-1] - 1)


def _until_end(token_ids: list[int], logprobs: list[float], ends: set[int]) -> Completion:
    length = next((place + 1 for place, token in enumerate(token_ids) if token in ends), len(token_ids))
    return Completion(token_ids=token_ids[:length], logprobs=logprobs[:length])
