"""Samples drawn for the same prompt: their means, and whether they differ at all."""

# S samples, G groups

import torch
from torch import Tensor


def group_sums(value_S: Tensor, group_S: Tensor) -> Tensor:
    """Sum per group, [G]; `group_S` (int64) numbers the groups from 0."""
    return value_S.new_zeros(_num_groups(group_S)).index_add(0, group_S, value_S)


def group_sizes(group_S: Tensor) -> Tensor:
    """Samples per group, [G]."""
    return torch.bincount(group_S, minlength=_num_groups(group_S))


def centred(reward_S: Tensor, group_S: Tensor) -> Tensor:
    """r - mean of its group; 0 for a lone sample, which has nothing to be compared with.

    Counted from the group's smallest reward, so that equal rewards give exactly 0 and not what rounding leaves.
    """
    above_S = reward_S - _extremes(reward_S, group_S, "amin")[group_S]
    means_G = group_sums(above_S, group_S) / group_sizes(group_S).clamp(min=1)
    return above_S - means_G[group_S]


def is_alive(reward_S: Tensor, group_S: Tensor) -> Tensor:
    """True where the sample's group holds different rewards; others teach nothing and leave the denominator too.

    By the group's own largest minus smallest: a standard deviation over the batch says nothing of one group, and over
    equal rewards it may round to a little more than 0.
    """
    spread_G = _extremes(reward_S, group_S, "amax") - _extremes(reward_S, group_S, "amin")
    return spread_G[group_S] > 0


def kl_weight(is_alive_S: Tensor, *, kl_on_dead_groups: bool = False) -> Tensor:
    """Weight of each sample in the KL term: a group without a lesson pulls to the base only where asked (trl#5588)."""
    return torch.ones_like(is_alive_S, dtype=torch.float32) if kl_on_dead_groups else is_alive_S.float()


def _extremes(value_S: Tensor, group_S: Tensor, which: str) -> Tensor:
    return value_S.new_zeros(_num_groups(group_S)).scatter_reduce(0, group_S, value_S, which, include_self=False)


def _num_groups(group_S: Tensor) -> int:
    return int(group_S.max()) + 1 if len(group_S) else 0
