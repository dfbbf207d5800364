"""From logits to one sampled token for each row, with the log-probability it really had.

Pure functions of tensors; randomness comes in as one uniform number for each row, so a row's result does not depend
on who shares its batch. Not here: running the network (serving.decoding) and text (serving.detokenize).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_online.serving.protocol import Sampling

# B rows, V vocabulary


def processed_logprobs(logits_BV: Tensor, samplings: Sequence[Sampling]) -> Tensor:
    """fp32 log-probabilities after temperature, top_k and top_p of each row, renormalised; excluded tokens are -inf.

    At temperature 0 the row is that of temperature 1 with no filter: greedy decoding has no distribution of its own.
    """
    temperature_B1 = logits_BV.new_tensor([[s.temperature or 1.0] for s in samplings], dtype=torch.float32)
    logp_BV = torch.log_softmax(logits_BV.float() / temperature_B1, dim=-1)
    for row, sampling in enumerate(samplings):
        if sampling.temperature == 0:
            continue
        if 0 < sampling.top_k < logp_BV.shape[1]:
            logp_BV[row] = torch.log_softmax(keep_top_k(logp_BV[row], sampling.top_k), dim=-1)
        if sampling.top_p < 1:
            logp_BV[row] = torch.log_softmax(keep_top_p(logp_BV[row], sampling.top_p), dim=-1)
    return logp_BV


def keep_top_k(logp_V: Tensor, top_k: int) -> Tensor:
    """The k likeliest tokens; of equals the one with the lower id, so that exactly k stay."""
    kept = logp_V.sort(descending=True, stable=True).indices[:top_k]
    return torch.full_like(logp_V, -torch.inf).index_copy(0, kept, logp_V[kept])


def keep_top_p(logp_V: Tensor, top_p: float) -> Tensor:
    """The fewest likeliest tokens whose probability reaches top_p, at least one.

    Example: probabilities .5 .3 .2 and top_p .6 keep the first two (.5 alone is too little).
    """
    ordered = logp_V.sort(descending=True, stable=True)
    before_V = ordered.values.double().exp().cumsum(0).roll(1)
    before_V[0] = 0.0
    kept = ordered.indices[before_V < top_p]
    return torch.full_like(logp_V, -torch.inf).index_copy(0, kept, logp_V[kept])


def choose(logp_BV: Tensor, samplings: Sequence[Sampling], uniforms: Sequence[float]) -> Tensor:
    """One token id for each row: the likeliest at temperature 0, else by inverting the distribution at the row's
    uniform.

    Uniforms lie in [0, 1). The id is the first whose cumulative probability exceeds the uniform, so a token of
    probability 0 is never chosen.
    """
    likeliest_B = logp_BV.argmax(dim=-1)
    if all(sampling.temperature == 0 for sampling in samplings):
        return likeliest_B
    cumulative_BV = logp_BV.double().exp().cumsum(dim=-1)
    total_B1 = cumulative_BV[:, -1:]
    target_B1 = total_B1 * torch.tensor(uniforms, dtype=torch.float64, device=logp_BV.device).unsqueeze(1)
    # Rounding may lift the product to the total itself, which no cumulative probability exceeds.
    target_B1 = torch.minimum(target_B1, torch.nextafter(total_B1, torch.zeros_like(total_B1)))
    sampled_B = torch.searchsorted(cumulative_BV, target_B1, right=True).squeeze(1)
    is_greedy_B = torch.tensor([sampling.temperature == 0 for sampling in samplings], device=logp_BV.device)
    return torch.where(is_greedy_B, likeliest_B, sampled_B)


def choice_seed(seed: int, index: int) -> int:
    """The seed of one of n choices: distinct for every index, and the same whoever shares the batch."""
    return (seed * 0x9E3779B97F4A7C15 + index * 0xBF58476D1CE4E5B9 + 1) % (1 << 64)
