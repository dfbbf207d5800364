"""Many tokens or samples to one loss: a weighted sum over a count that the caller took over the whole step.

Two masks, two denominators.
Structural (prompt, padding, tool output, truncated rows): such tokens are in no tensor here, so in no sum and no count.
Off-policy rejection (`keep`): leaves the sum and stays in the count, else the tokens that stay would each count for
N / N_kept more (AReaL explains the same choice beside its decoupled loss).

What the count counts names the algorithm: all trained tokens (DAPO), samples, with each token weighing 1 / its
sample's length (GRPO), or samples times a constant length (Dr.GRPO).
"""

# K trained tokens of one micro-batch, S its samples; K or S where a function takes either, written N

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0  # exp() must not overflow on a bad mismatch; a token this far off is noise anyway


def weighted_mean(value_N: Tensor, weight_N: Tensor, *, denominator: float) -> Tensor:
    """sum(weight * value) / denominator; the plain sum, 0 for no value, where `denominator` is 0: nothing counts."""
    total = (weight_N * value_N).sum()
    return total / denominator if denominator else total


def kept(value_N: Tensor, keep_N: Tensor) -> Tensor:
    """`value` where kept, else 0: never a product with the mask, for inf * 0 is nan."""
    return torch.where(keep_N, value_N, 0.0)


def log_ratio(logp_N: Tensor, anchor_N: Tensor, keep_N: Tensor) -> Tensor:
    """l - anchor, within +-20; 0 where not kept, so that neither its value nor its gradient can be nan."""
    return torch.where(keep_N, logp_N - anchor_N, 0.0).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def sample_sums(value_K: Tensor, lengths_S: Tensor) -> Tensor:
    """Each sample's sum over its tokens; `lengths_S` (int64) cuts the row of tokens. 0 for a sample without any."""
    return value_K.new_zeros(len(lengths_S)).index_add(0, sample_of(lengths_S), value_K)


def sample_means(value_K: Tensor, lengths_S: Tensor) -> Tensor:
    """Each sample's mean over its tokens; 0 for a sample without any."""
    return sample_sums(value_K, lengths_S) / lengths_S.clamp(min=1)


def to_tokens(value_S: Tensor, lengths_S: Tensor) -> Tensor:
    """A sample's value at each of its tokens.

    Example: values [.5, -1], lengths [2, 1] -> [.5, .5, -1]
    """
    return value_S.repeat_interleave(lengths_S)


def sample_of(lengths_S: Tensor) -> Tensor:
    """Which sample each token belongs to."""
    return torch.arange(len(lengths_S), device=lengths_S.device).repeat_interleave(lengths_S)


def sequence_mean_weights(lengths_S: Tensor) -> Tensor:
    """1 / length at each token: over the number of samples this is GRPO's mean of sequence means."""
    return to_tokens(1.0 / lengths_S.clamp(min=1), lengths_S)
