"""Dr.GRPO: GRPO without its two length and difficulty biases (Liu et al. 2025, arXiv 2503.20783).

No division by the group's standard deviation, which overweights prompts that are almost always or never solved, and
none by a sample's length, which makes long wrong answers cheap. The loss is `ppo.clipped_surrogate` with weights 1 and
`constant_denominator`.
"""

# S samples

from torch import Tensor

from rl_online.algorithms.groups import centred


def dr_grpo_advantage(reward_S: Tensor, group_S: Tensor) -> Tensor:
    """r - mean_g. Example: rewards 1, 0, 0, 0 -> .75, -.25, -.25, -.25"""
    return centred(reward_S, group_S)


def constant_denominator(num_samples: int, *, max_length: int) -> float:
    """Samples times the longest completion allowed: a constant, so no answer's length changes what a token weighs."""
    return float(num_samples * max_length)
