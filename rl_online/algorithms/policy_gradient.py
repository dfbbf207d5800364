"""REINFORCE on data that a slightly older policy sampled, kept near it by a mask and a pull.

Loss per token: -keep * A * exp(l - b) + tau * (l - b)^2 over a global token count ("DPPO-binary-TV + K2", the default
of prime-rl). l is the log-probability now, b that at sampling, A the advantage.

Two masks, two denominators: tokens the policy did not choose (prompt, padding, tool output) are not in these tensors
at all, so they are in no count either. Tokens the mask rejects leave the sum but stay in the denominator; taking them
out would make the rest count for more.
"""

# K trained tokens of one micro-batch

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0  # exp() must not overflow on a bad mismatch; a token this far off is noise anyway


def dppo_keep(logp_K: Tensor, behaviour_K: Tensor, advantage_K: Tensor, *, high: float, low: float) -> Tensor:
    """False where a token's probability already moved beyond the limit in the direction its advantage asks for."""
    change_K = logp_K.detach().exp() - behaviour_K.exp()
    rose_enough = (advantage_K > 0) & (change_K > high)
    fell_enough = (advantage_K < 0) & (-change_K > low)
    return ~(rose_enough | fell_enough)


def reinforce(
    logp_K: Tensor, behaviour_K: Tensor, advantage_K: Tensor, weight_K: Tensor, keep_K: Tensor, *, denominator: float
) -> Tensor:
    """-sum(keep * weight * A * exp(l - b)) / denominator; 0 when there is no token.

    `denominator` counts the trained tokens of the whole optimizer step, so splitting that step changes nothing.
    """
    log_ratio_K = torch.where(keep_K, logp_K - behaviour_K, 0.0).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    gain_K = torch.where(keep_K, advantage_K * log_ratio_K.exp(), 0.0)
    return -(weight_K * gain_K).sum() / denominator


def behaviour_pull(logp_K: Tensor, behaviour_K: Tensor, weight_K: Tensor, *, denominator: float) -> Tensor:
    """sum(weight * (l - b)^2) / denominator: twice the k2 estimate of the KL from the policy to its sampler."""
    return (weight_K * (logp_K - behaviour_K).square()).sum() / denominator
