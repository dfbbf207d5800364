"""DRO: a regression for data of any age, without ratio or clip (Richemond et al. 2024, arXiv 2405.19107)."""

# K trained tokens of one micro-batch

from torch import Tensor

from rl_online.algorithms.reduction import weighted_mean


def dro(
    logp_K: Tensor,
    old_K: Tensor,
    advantage_K: Tensor,
    weight_K: Tensor,
    *,
    beta: float,
    denominator: float,
) -> Tensor:
    """-sum(weight * (l A - beta / 2 * (l - o)^2)) / denominator: the square is the only tie to the sampler."""
    loss_K = 0.5 * beta * (logp_K - old_K).square() - logp_K * advantage_K
    return weighted_mean(loss_K, weight_K, denominator=denominator)
