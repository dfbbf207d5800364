"""Ratios of whole answers, and how far one may go before its answer is left out.

A sum of log-ratios grows with the answer: 1,000 tokens that each moved by .002 multiply to 7.39, and a fixed cap on the
product throws out every long answer for rounding alone (trl#5814). So the limits here are on the mean per token, or on
a sum whose allowance grows with the square root of the length, as the sum of independent roundings does.
"""

# K trained tokens of one micro-batch, S its samples

import torch
from torch import Tensor

from rl_online.algorithms.reduction import sample_means, sample_sums


@torch.no_grad()
def mean_ratio_keep(
    old_K: Tensor, behaviour_K: Tensor, lengths_S: Tensor, *, low: float = 0.5, high: float = 2.0
) -> Tensor:
    """Per sample: whether exp(mean of o - b), its geometric mean ratio, lies within [low, high]."""
    ratio_S = sample_means(old_K - behaviour_K, lengths_S).exp()
    return (ratio_S >= low) & (ratio_S <= high)


@torch.no_grad()
def sum_ratio_keep(old_K: Tensor, behaviour_K: Tensor, lengths_S: Tensor, *, max_per_root_token: float = 0.5) -> Tensor:
    """Per sample: whether |sum of o - b| is at most max_per_root_token * sqrt(length).

    Example: .5 lets 4 tokens move by 1 together and 400 by 10; a cap of 3 on the product lets both move by 1.10.
    """
    return sample_sums(old_K - behaviour_K, lengths_S).abs() <= max_per_root_token * lengths_S.sqrt()


@torch.no_grad()
def opsm_keep(
    logp_K: Tensor, behaviour_K: Tensor, advantage_S: Tensor, lengths_S: Tensor, *, threshold: float = 1e-4
) -> Tensor:
    """Off-policy sequence masking: False for a bad answer (A < 0) whose mean b - l is above the threshold.

    Such an answer is one the policy has moved away from already; good ones always stay (DeepSeek-V3.2,
    arXiv 2512.02556; slime `--opsm-delta`, TRL `off_policy_mask_threshold`). Spread it with `reduction.to_tokens`.
    """
    moved_away_S = sample_means(behaviour_K - logp_K, lengths_S) > threshold
    return ~((advantage_S < 0) & moved_away_S)
