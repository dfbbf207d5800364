"""The value head's loss in PPO: a square that is clipped like the policy's ratio."""

# K trained tokens of one micro-batch

import torch
from torch import Tensor

from rl_online.algorithms.reduction import weighted_mean


def clipped_value_loss(
    value_K: Tensor,
    old_value_K: Tensor,
    return_K: Tensor,
    weight_K: Tensor,
    *,
    denominator: float,
    clip: float = 0.2,
) -> Tensor:
    """sum(weight * max((V - R)^2, (V_old + clip(V - V_old, -clip, clip) - R)^2) / 2) / denominator.

    The pessimistic of the two: a value that ran past the range away from R keeps its gradient, one that ran past it
    towards R loses it. Source: verl `compute_value_loss`, OpenRLHF `ValueLoss`.
    """
    near_K = old_value_K + (value_K - old_value_K).clamp(-clip, clip)
    loss_K = 0.5 * torch.maximum((value_K - return_K).square(), (near_K - return_K).square())
    return weighted_mean(loss_K, weight_K, denominator=denominator)
