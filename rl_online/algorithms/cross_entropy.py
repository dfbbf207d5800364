"""Cross-entropy on tokens somebody else chose: demonstrations, and what users made of an answer."""

# K trained tokens of one micro-batch

from torch import Tensor

from rl_online.algorithms.reduction import weighted_mean


def cross_entropy(logp_K: Tensor, weight_K: Tensor, *, denominator: float) -> Tensor:
    """-sum(weight * l) / denominator; `denominator` counts such tokens in the whole optimizer step."""
    return -weighted_mean(logp_K, weight_K, denominator=denominator)
