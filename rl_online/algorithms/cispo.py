"""CISPO: the ratio is clipped as a weight and every token keeps its gradient (MiniMax-M1, arXiv 2506.13585)."""

# K trained tokens of one micro-batch

from torch import Tensor

from rl_online.algorithms.reduction import kept, log_ratio, weighted_mean


def cispo(
    logp_K: Tensor,
    old_K: Tensor,
    advantage_K: Tensor,
    weight_K: Tensor,
    keep_K: Tensor,
    *,
    denominator: float,
    ratio_low: float = 0.0,
    ratio_high: float = 5.0,
) -> Tensor:
    """-sum(keep * weight * sg(clamp(r, ratio_low, ratio_high)) * A * l) / denominator, r = exp(l - o).

    Both limits are ratios themselves, as TRL's `epsilon_high`; verl and slime count theirs from 1 under the same name.
    """
    clipped_K = log_ratio(logp_K.detach(), old_K, keep_K).exp().clamp(ratio_low, ratio_high)
    return -weighted_mean(kept(clipped_K * advantage_K * logp_K, keep_K), weight_K, denominator=denominator)
