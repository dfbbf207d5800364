"""From logits to one sampled token for each row, with the log-probability it really had.

Pure functions of tensors; randomness comes in as one uniform number for each row, so a row's result does not depend
on who shares its batch. Not here: running the network (serving.decoding) and text (serving.detokenize).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_online.serving.protocol import Sampling

# B rows, V vocabulary, N blocks of K tokens

BLOCK = 256


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
    """One token id for each row: the likeliest at temperature 0, else the distribution inverted at the row's uniform.

    Uniforms lie in [0, 1). The id is the first whose cumulative probability exceeds the uniform, so a token of
    probability 0 is never chosen.
    """
    is_greedy = [sampling.temperature == 0 for sampling in samplings]
    if all(is_greedy):
        return logp_BV.argmax(dim=-1)
    uniforms_B = torch.tensor(uniforms, dtype=torch.float64, device=logp_BV.device)
    sampled_B = invert(logp_BV.exp(), uniforms_B)
    if not any(is_greedy):
        return sampled_B
    return torch.where(torch.tensor(is_greedy, device=logp_BV.device), logp_BV.argmax(dim=-1), sampled_B)


def invert(probability_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """First find the block of tokens the uniform falls into, then the token: cheaper than one long sum in fp64."""
    num_rows, size = probability_BV.shape
    padded_BV = torch.nn.functional.pad(probability_BV, (0, -size % BLOCK))
    blocks_BNK = padded_BV.view(num_rows, -1, BLOCK)
    upto_BN = blocks_BNK.sum(dim=-1).double().cumsum(dim=-1)
    target_B = uniform_B * upto_BN[:, -1]
    block_B = first_above(upto_BN, target_B)
    rows_B = torch.arange(num_rows, device=probability_BV.device)
    before_B = torch.where(block_B > 0, upto_BN[rows_B, block_B - 1], 0.0)
    upto_BK = blocks_BNK[rows_B, block_B].double().cumsum(dim=-1)
    return block_B * BLOCK + first_above(upto_BK, target_B - before_B)


def first_above(cumulative_BN: Tensor, target_B: Tensor) -> Tensor:
    """The first position of each row whose value exceeds the target.

    Rounding may lift a target to the row's last value, which nothing exceeds; it then counts as just below.
    """
    last_B = cumulative_BN[:, -1]
    below_B = torch.minimum(target_B, torch.nextafter(last_B, torch.zeros_like(last_B)))
    return torch.searchsorted(cumulative_BN, below_B.unsqueeze(1), right=True).squeeze(1)


def choice_seed(seed: int, index: int) -> int:
    """The seed of one of n choices: distinct for every index, and the same whoever shares the batch."""
    return (seed * 0x9E3779B97F4A7C15 + index * 0xBF58476D1CE4E5B9 + 1) % (1 << 64)
