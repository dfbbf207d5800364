"""The KL from the policy to a frozen base, as a loss term whose gradient really is the KL's.

f is the base's log-probability of the sampled token. Placed in a loss, k1 = l - f has no gradient in expectation, so it
is offered for the reward alone (`kl_reward`), and bare k3 has the gradient of the *other* KL, so it is offered under
that name alone (`kl_base_to_policy_k3`). The tests measure all five by exact enumeration.
"""

# K trained tokens of one micro-batch

import torch
from torch import Tensor

from rl_online.algorithms.reduction import MAX_LOG_RATIO, weighted_mean


def kl_policy_to_base_k2(logp_K: Tensor, base_K: Tensor, weight_K: Tensor, *, denominator: float) -> Tensor:
    """sum(weight * (l - f)^2 / 2) / denominator. Gradient exact when the policy itself sampled; value slightly low."""
    return weighted_mean(0.5 * (logp_K - base_K).square(), weight_K, denominator=denominator)


def kl_policy_to_base_ratio_k3(
    logp_K: Tensor, behaviour_K: Tensor, base_K: Tensor, weight_K: Tensor, *, denominator: float
) -> Tensor:
    """sum(weight * exp(l - b) * (exp(f - l) - 1 + l - f)) / denominator. Value and gradient exact, also off-policy.

    That holds for tokens drawn by whom b belongs to, the sampler. TRL's `use_bias_correction_kl` passes the trainer's
    own before the first step instead, which is as good where the two agree.
    """
    ratio_K = (logp_K - behaviour_K).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    return weighted_mean(ratio_K * _k3(logp_K, base_K), weight_K, denominator=denominator)


def kl_base_to_policy_k3(logp_K: Tensor, base_K: Tensor, weight_K: Tensor, *, denominator: float) -> Tensor:
    """sum(weight * (exp(f - l) - 1 + l - f)) / denominator: the bare k3 that GRPO puts in its loss.

    On-policy its value is that of KL(policy to base) but its gradient that of KL(base to policy), which spreads the
    policy over all the base does. For the KL of the name on every other page use `kl_policy_to_base_ratio_k3`.
    """
    return weighted_mean(_k3(logp_K, base_K), weight_K, denominator=denominator)


@torch.no_grad()
def kl_reward(behaviour_K: Tensor, base_K: Tensor, *, coefficient: float = 0.05) -> Tensor:
    """-coefficient * k1 = -coefficient * (b - f), to be added to each token's reward; carries no gradient.

    Through the policy gradient this is the KL's exact gradient. PPO's and RLOO's custom, and Composer 2's.
    """
    return -coefficient * (behaviour_K - base_K)


def _k3(logp_K: Tensor, base_K: Tensor) -> Tensor:
    gap_K = (base_K - logp_K).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return gap_K.exp() - 1 - gap_K
