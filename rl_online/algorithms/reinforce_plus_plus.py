"""REINFORCE++: advantages whitened over the whole batch instead of the group (Hu 2025, arXiv 2501.03262).

Two variants: return-to-go of token rewards (a KL to the base may be among them), and rewards centred in their group.
"""

# K trained tokens of the whole batch, S its samples

import torch
from torch import Tensor

from rl_online.algorithms.gae import gae
from rl_online.algorithms.groups import centred
from rl_online.algorithms.reduction import to_tokens

MIN_VARIANCE = 1e-8  # equal values are centred, not divided by 0


def reinforce_plus_plus(reward_K: Tensor, lengths_S: Tensor, *, gamma: float = 1.0) -> Tensor:
    """Discounted return from each token to its sample's end, whitened over all tokens of the batch."""
    returns_K = gae(reward_K, torch.zeros_like(reward_K), lengths_S, gamma=gamma, lam=1.0).return_K
    return whiten(returns_K)


def reinforce_plus_plus_baseline(reward_S: Tensor, group_S: Tensor, lengths_S: Tensor) -> Tensor:
    """r - mean_g at each token, whitened over all tokens; a lone sample has centre 0 (verl: its bare reward)."""
    return whiten(to_tokens(centred(reward_S, group_S), lengths_S))


def whiten(value_N: Tensor) -> Tensor:
    """Mean 0 and variance 1 (with n - 1); a single value becomes 0."""
    centred_N = value_N - value_N.mean()
    variance = centred_N.square().sum() / max(len(value_N) - 1, 1)
    return centred_N * torch.rsqrt(variance + MIN_VARIANCE)
