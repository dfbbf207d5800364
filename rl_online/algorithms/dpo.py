"""DPO: a preferred and a rejected answer to one prompt, against a frozen reference (Rafailov et al. 2023, 2305.18290).

A gain is an answer's summed log-probability under the policy minus under the reference. `margin` below is the preferred
answer's gain minus the rejected one's.
"""

# P pairs of one micro-batch

from torch import Tensor
from torch.nn.functional import logsigmoid

from rl_online.algorithms.reduction import weighted_mean


def dpo(
    preferred_P: Tensor,
    rejected_P: Tensor,
    weight_P: Tensor,
    *,
    denominator: float,
    beta: float = 0.1,
    label_smoothing: float = 0.0,
) -> Tensor:
    """sum(weight * (-(1 - e) log sigma(beta margin) - e log sigma(-beta margin))) / denominator.

    `label_smoothing` e is the share of pairs thought to be the wrong way round; above 0 this is cDPO (Mitchell 2023).
    """
    margin_P = beta * (preferred_P - rejected_P)
    loss_P = -(1 - label_smoothing) * logsigmoid(margin_P) - label_smoothing * logsigmoid(-margin_P)
    return weighted_mean(loss_P, weight_P, denominator=denominator)


def robust_dpo(
    preferred_P: Tensor,
    rejected_P: Tensor,
    weight_P: Tensor,
    *,
    denominator: float,
    beta: float = 0.1,
    label_smoothing: float = 0.1,
) -> Tensor:
    """sum(weight * (-(1 - e) log sigma(beta margin) + e log sigma(-beta margin)) / (1 - 2e)) / denominator.

    Unbiased when a share e < 1/2 of the pairs is the wrong way round (Chowdhury et al. 2024, arXiv 2403.00409); it has
    no lower bound, so a wrong e lets confident pairs run away.
    """
    if not 0 <= label_smoothing < 0.5:
        raise ValueError(f"label_smoothing is {label_smoothing}; robust DPO needs at least 0 and less than .5")
    margin_P = beta * (preferred_P - rejected_P)
    clean_P, flipped_P = -logsigmoid(margin_P), -logsigmoid(-margin_P)
    loss_P = ((1 - label_smoothing) * clean_P - label_smoothing * flipped_P) / (1 - 2 * label_smoothing)
    return weighted_mean(loss_P, weight_P, denominator=denominator)
