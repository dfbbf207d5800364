"""GSPO: one ratio per answer, the geometric mean of its tokens' (Zheng et al. 2025, arXiv 2507.18071)."""

# K trained tokens of one micro-batch, S its samples

from torch import Tensor

from rl_online.algorithms.ppo import clipped_loss
from rl_online.algorithms.reduction import MAX_LOG_RATIO, sample_means, weighted_mean


def gspo(
    logp_K: Tensor,
    old_K: Tensor,
    advantage_S: Tensor,
    weight_S: Tensor,
    lengths_S: Tensor,
    *,
    denominator: float,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
) -> Tensor:
    """sum(weight * max(-s A, -clip(s) A)) / denominator over samples, s = exp(mean over the sample of l - o).

    A mean, not a sum: 1,000 tokens that each moved by .002 make s = 1.002, where the sum would make 7.39. The range is
    that small for the same reason; PPO's .2 would never clip.
    """
    log_ratio_S = sample_means(logp_K - old_K, lengths_S).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    loss_S = clipped_loss(log_ratio_S.exp(), advantage_S, clip_low=clip_low, clip_high=clip_high)
    return weighted_mean(loss_S, weight_S, denominator=denominator)
