"""GRPO: a sample's advantage is how its reward stands in its group (Shao et al. 2024, arXiv 2402.03300).

The loss is `ppo.clipped_surrogate` as a mean of sequence means: weights `reduction.sequence_mean_weights`, the number
of samples as denominator.
"""

# S samples

import torch
from torch import Tensor

from rl_online.algorithms.groups import centred, group_sizes, group_sums


def grpo_advantage(reward_S: Tensor, group_S: Tensor, *, epsilon: float = 1e-4) -> Tensor:
    """(r - mean_g) / (std_g + epsilon), std with n - 1 as in TRL and verl (whose epsilon is 1e-6).

    A lone sample gets 0 as in TRL; verl gives it its bare reward, which is no comparison.
    Example: rewards 1, 0, 0, 0 -> 1.49970, -.49990, -.49990, -.49990
    """
    deviation_S = centred(reward_S, group_S)
    degrees_G = (group_sizes(group_S) - 1).clamp(min=1)
    std_G = torch.sqrt(group_sums(deviation_S.square(), group_S) / degrees_G)
    return deviation_S / (std_G[group_S] + epsilon)
