"""DAPO: PPO's clip with more room upwards, over all tokens of the batch (Yu et al. 2025, arXiv 2503.14476).

Its other parts: groups whose rewards are all equal are left out (`groups.is_alive`), answers that run into the length
limit are punished softly (`overlong_penalty`), and there is no KL.
"""

# K trained tokens of one micro-batch, S its samples

from torch import Tensor

from rl_online.algorithms.ppo import clipped_surrogate


def dapo(
    logp_K: Tensor,
    old_K: Tensor,
    advantage_K: Tensor,
    weight_K: Tensor,
    keep_K: Tensor,
    *,
    denominator: float,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
) -> Tensor:
    """`clipped_surrogate` with clip .2 / .28; `denominator` counts the trained tokens of the whole step.

    The name alone does not fix the range: TRL's loss_type="dapo" clips at .2 / .2 unless told otherwise.
    """
    return clipped_surrogate(
        logp_K,
        old_K,
        advantage_K,
        weight_K,
        keep_K,
        denominator=denominator,
        clip_low=clip_low,
        clip_high=clip_high,
    )


def overlong_penalty(lengths_S: Tensor, *, max_length: int, buffer: int) -> Tensor:
    """What to add to the reward: 0 up to max_length - buffer tokens, then falling to -1 at max_length and beyond.

    Example: max_length 20, buffer 4, lengths 16, 18, 20 -> 0, -.5, -1
    """
    return ((max_length - buffer - lengths_S) / buffer).clamp(-1.0, 0.0)
