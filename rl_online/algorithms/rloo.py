"""RLOO: each sample against the mean of the others of its group (Ahmadian et al. 2024, arXiv 2402.14740).

The ratio is that of the whole sequence, as in TRL's RLOOTrainer; sums over long answers leave any clip range on
numerical noise alone (see `sequence_ratio`), so this loss is for short answers or data of the same policy.
"""

# K trained tokens of one micro-batch, S its samples

import torch
from torch import Tensor

from rl_online.algorithms.groups import centred, group_sizes
from rl_online.algorithms.ppo import clipped_loss
from rl_online.algorithms.reduction import MAX_LOG_RATIO, sample_sums, weighted_mean


def rloo_advantage(reward_S: Tensor, group_S: Tensor) -> Tensor:
    """r - mean of the group's others = G / (G - 1) * (r - mean_g); 0 for a lone sample.

    Example: rewards 1, 0, 0, 0 -> 1, -1/3, -1/3, -1/3
    """
    size_S = group_sizes(group_S)[group_S]
    return centred(reward_S, group_S) * size_S / (size_S - 1).clamp(min=1)


def sequence_surrogate(
    logp_K: Tensor,
    old_K: Tensor,
    advantage_S: Tensor,
    weight_S: Tensor,
    lengths_S: Tensor,
    *,
    denominator: float,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> Tensor:
    """sum(weight * max(-R A, -clip(R) A)) / denominator, R = exp(sum over the sample of l - o)."""
    log_ratio_S = sample_sums(logp_K - old_K, lengths_S).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    loss_S = clipped_loss(torch.exp(log_ratio_S), advantage_S, clip_low=clip_low, clip_high=clip_high)
    return weighted_mean(loss_S, weight_S, denominator=denominator)
