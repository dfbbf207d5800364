"""On-policy distillation where the teacher scores only the sampled tokens: its opinion is each token's advantage.

Thinking Machines 2025 (tinker-cookbook `distillation/train_on_policy.py`), slime `--opd-kl-coef`, prime-rl's
`ref_kl_loss_fn`. The advantage goes into any loss with a ratio; each token answers for itself (discount 0).
"""

# K trained tokens of one micro-batch

import torch
from torch import Tensor


@torch.no_grad()
def distillation_advantage(behaviour_K: Tensor, teacher_K: Tensor, *, coefficient: float = 1.0) -> Tensor:
    """-coefficient * (b - log p_teacher), k1 of KL(student to teacher) as a reward; carries no gradient.

    Its policy gradient is the exact gradient of the KL at each token, on-policy.
    """
    return -coefficient * (behaviour_K - teacher_K)


@torch.no_grad()
def one_sided_keep(logp_K: Tensor, behaviour_K: Tensor, *, low: float = 0.2) -> Tensor:
    """False where a token's probability fell by more than `low` already, whatever its advantage (prime-rl)."""
    return behaviour_K.exp() - logp_K.exp() <= low
