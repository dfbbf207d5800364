"""The KL from the policy to a frozen base, as a loss term whose gradient really is the KL's.

f is the base's log-probability of the sampled token. Placed in a loss, k1 = l - f has no gradient in expectation and
bare k3 has the gradient of the *other* KL, so neither is offered (measured in docs/algorithms.md).
"""

# K trained tokens of one micro-batch

from torch import Tensor

from rl_online.algorithms.policy_gradient import MAX_LOG_RATIO


def kl_policy_to_base_k2(logp_K: Tensor, base_K: Tensor, weight_K: Tensor, *, denominator: float) -> Tensor:
    """sum(weight * (l - f)^2 / 2) / denominator. Gradient exact when the policy itself sampled; value slightly low."""
    return (weight_K * 0.5 * (logp_K - base_K).square()).sum() / denominator


def kl_policy_to_base_ratio_k3(
    logp_K: Tensor, behaviour_K: Tensor, base_K: Tensor, weight_K: Tensor, *, denominator: float
) -> Tensor:
    """sum(weight * exp(l - b) * (exp(f - l) - 1 + l - f)) / denominator. Value and gradient exact, also off-policy."""
    ratio_K = (logp_K - behaviour_K).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    gap_K = (base_K - logp_K).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return (weight_K * ratio_K * (gap_K.exp() - 1 - gap_K)).sum() / denominator
