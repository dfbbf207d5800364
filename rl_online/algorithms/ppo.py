"""PPO's clipped surrogate, with the dual clip, and decoupled from the policy that sampled.

Schulman et al. 2017 (arXiv 1707.06347); dual clip: Ye et al. 2020 (arXiv 1912.09729); decoupled: Hilton et al. 2022
(arXiv 2110.00641), as in AReaL's `ppo_actor_loss_fn`.
"""

# K trained tokens of one micro-batch; N for tokens or samples

import torch
from torch import Tensor

from rl_online.algorithms.reduction import kept, log_ratio, weighted_mean


def clipped_surrogate(
    logp_K: Tensor,
    old_K: Tensor,
    advantage_K: Tensor,
    weight_K: Tensor,
    keep_K: Tensor,
    *,
    denominator: float,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
) -> Tensor:
    """sum(keep * weight * max(-r A, -clip(r, 1 - clip_low, 1 + clip_high) A)) / denominator, r = exp(l - o).

    o is the log-probability before the first step on this batch. Decoupled PPO: pass o recomputed by the trainer and
    `weight * tis_weight(o, b)`, b that at sampling; with o = b such a weight would count the mismatch twice.
    `dual_clip` c > 1 caps a bad token's loss at -c A (usually 3).
    """
    ratio_K = log_ratio(logp_K, old_K, keep_K).exp()
    loss_K = clipped_loss(ratio_K, advantage_K, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip)
    return weighted_mean(kept(loss_K, keep_K), weight_K, denominator=denominator)


def clipped_loss(
    ratio_N: Tensor, advantage_N: Tensor, *, clip_low: float, clip_high: float, dual_clip: float | None = None
) -> Tensor:
    """max(-r A, -clip(r) A) for each ratio; a bad one at most -dual_clip * A."""
    clipped_N = ratio_N.clamp(1 - clip_low, 1 + clip_high)
    loss_N = torch.maximum(-ratio_N * advantage_N, -clipped_N * advantage_N)
    if dual_clip is None:
        return loss_N
    return torch.where(advantage_N < 0, torch.minimum(loss_N, -dual_clip * advantage_N), loss_N)
