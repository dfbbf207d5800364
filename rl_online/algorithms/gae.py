"""GAE: credit for each token from a value head (Schulman et al. 2016, arXiv 1506.02438)."""

# K trained tokens of the whole batch, S its samples

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenCredit:
    """What each token earned."""

    advantage_K: Tensor  # for the policy; whiten it over the batch before use (PPO's custom)
    return_K: Tensor  # advantage + value: what the value head should have said


def gae(reward_K: Tensor, value_K: Tensor, lengths_S: Tensor, *, gamma: float = 1.0, lam: float = 1.0) -> TokenCredit:
    """A_t = d_t + gamma lam A_{t+1}, d_t = r_t + gamma V_{t+1} - V_t, within each sample; V after its last token is 0.

    The value of a token is that of the state it was chosen in. A sample that was cut off is taken as ended: give its
    bootstrap value as part of the last reward.
    Example: rewards 0, 1, values .5, .25, gamma and lam 1 -> advantages .5, .75, returns 1, 1
    """
    rewards, values = reward_K.tolist(), value_K.tolist()  # one token after the other is slow as tensors
    advantages = [0.0] * len(rewards)
    end = 0
    for length in lengths_S.tolist():
        start, end = end, end + length
        following_value = following_advantage = 0.0
        for place in reversed(range(start, end)):
            surprise = rewards[place] + gamma * following_value - values[place]
            following_advantage = surprise + gamma * lam * following_advantage
            following_value = values[place]
            advantages[place] = following_advantage
    advantage_K = torch.tensor(advantages, dtype=value_K.dtype, device=value_K.device)
    return TokenCredit(advantage_K=advantage_K, return_K=advantage_K + value_K.detach())
