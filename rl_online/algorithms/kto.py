"""KTO: learning from good and bad answers whose sampling log-probabilities nobody recorded (Ethayarajh et al. 2024).

R is a completion's summed log-probability under the policy minus under the reference. z, the reference point, is the
same sum for completions paired with prompts they do not belong to; it carries no gradient and is never below 0.
APO-zero (D'Oosterlinck et al. 2024, arXiv 2408.06266) is the same without the reference point.
"""

# S samples of one micro-batch

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_online.algorithms.reduction import weighted_mean


def kto(
    gain_S: Tensor,
    is_good_S: Tensor,
    weight_S: Tensor,
    *,
    reference_point: float,
    denominator: float,
    beta: float = 0.1,
    desirable: float = 1.0,
    undesirable: float = 1.0,
) -> Tensor:
    """Good: desirable * (1 - sigma(beta (R - z))); bad: undesirable * (1 - sigma(beta (z - R))); sum / denominator.

    `gain_S` is R. One class alone is fine: the sum runs over whoever is there.
    """
    margin_S = torch.where(is_good_S, gain_S - reference_point, reference_point - gain_S)
    scale_S = torch.where(is_good_S, desirable, undesirable)
    return weighted_mean(scale_S * (1 - torch.sigmoid(beta * margin_S)), weight_S, denominator=denominator)


def apo_zero_unpaired(
    gain_S: Tensor,
    is_good_S: Tensor,
    weight_S: Tensor,
    *,
    denominator: float,
    beta: float = 0.1,
    desirable: float = 1.0,
    undesirable: float = 1.0,
) -> Tensor:
    """KTO with z = 0: no mismatched pairs to score. For good answers that are better than what the policy says."""
    return kto(
        gain_S,
        is_good_S,
        weight_S,
        reference_point=0.0,
        denominator=denominator,
        beta=beta,
        desirable=desirable,
        undesirable=undesirable,
    )


def reference_point(mismatched_gains: Sequence[float]) -> float:
    """z: the mean R of mismatched pairs, at least 0; 0 when there is none."""
    if not mismatched_gains:
        return 0.0
    return max(0.0, sum(mismatched_gains) / len(mismatched_gains))


def mismatched(num_samples: int) -> list[int]:
    """For each sample, whose completion it is paired with: the next one's, round in a ring.

    A reversal would pair the middle one of an odd number with itself; a rotation never does. Empty below two samples.
    """
    return [(index + 1) % num_samples for index in range(num_samples)] if num_samples > 1 else []
