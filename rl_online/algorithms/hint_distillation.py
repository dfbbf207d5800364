"""Hint self-distillation: the policy that has read a hint teaches the one that has not.

The hint (what the user corrected, an error message, a diff) stands in the teacher's context alone; the answer is scored
twice and only the flagged turn's tokens learn. SDPO (arXiv 2601.20802), OPSD (arXiv 2601.18734), as Composer 2.5
describes it; the sampled form with a reward beside it is OpenClaw-RL's (arXiv 2603.10165).
"""

# K trained tokens of one micro-batch, V vocabulary

import torch
from torch import Tensor

from rl_online.algorithms.gkd import generalised_jsd


def hint_distillation(
    student_KV: Tensor,
    hinted_KV: Tensor,
    is_flagged_K: Tensor,
    weight_K: Tensor,
    *,
    denominator: float,
    beta: float = 0.0,
    temperature: float = 1.0,
) -> Tensor:
    """`generalised_jsd` from the hinted logits (no gradient) to the unhinted, over flagged tokens alone.

    Both rows predict the same token of the answer, whose place differs by the hint's length. `denominator` counts
    flagged tokens. beta 0 is KL(hinted to unhinted).
    """
    return generalised_jsd(
        student_KV[is_flagged_K],
        hinted_KV[is_flagged_K],
        weight_K[is_flagged_K],
        denominator=denominator,
        beta=beta,
        temperature=temperature,
    )


@torch.no_grad()
def hint_advantage(
    reward_K: Tensor, hinted_K: Tensor, old_K: Tensor, *, reward_weight: float = 1.0, hint_weight: float = 1.0
) -> Tensor:
    """reward_weight * r + hint_weight * (log p(token | hint) - o), for a clipped loss; carries no gradient.

    The reward comes as it is, without a baseline: give it one first (OpenClaw's own code has none).
    """
    return reward_weight * reward_K + hint_weight * (hinted_K - old_K)
