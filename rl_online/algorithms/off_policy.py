"""Weights for tokens whose sampler was not quite the trainer: another engine's rounding, or an older checkpoint.

The mismatch is m = exp(o - b): o the trainer's log-probability before the first step, b the one recorded at sampling.
A weight multiplies `weight_K` of a loss whose own ratio is taken to o. With a ratio to b (REINFORCE here, or "bypass"
elsewhere) the mismatch is in the loss already, and a weight would count it twice. All carry no gradient, and tokens of
weight 0 stay in the denominator (see `reduction`).
"""

# K trained tokens of one micro-batch

import torch
from torch import Tensor

from rl_online.algorithms.reduction import MAX_LOG_RATIO


@torch.no_grad()
def tis_weight(old_K: Tensor, behaviour_K: Tensor, *, cap: float = 2.0, floor: float = 0.0) -> Tensor:
    """Truncated importance sampling: m, at most `cap` and at least `floor` (Yao et al. 2025; slime, verl, SkyRL)."""
    return _mismatch(old_K, behaviour_K).clamp(floor, cap)


@torch.no_grad()
def icepop_weight(old_K: Tensor, behaviour_K: Tensor, *, low: float = 0.5, high: float = 5.0) -> Tensor:
    """m within [low, high], else 0: what is far off is noise (Ring team 2025, IcePop; slime `icepop_function`).

    Its authors report that fixed bounds mask fewer tokens while the mismatch grows: watch `clipped_share`.
    """
    mismatch_K = _mismatch(old_K, behaviour_K)
    return torch.where((mismatch_K >= low) & (mismatch_K <= high), mismatch_K, 0.0)


def _mismatch(old_K: Tensor, behaviour_K: Tensor) -> Tensor:
    return (old_K - behaviour_K).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
