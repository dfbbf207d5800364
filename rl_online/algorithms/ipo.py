"""IPO: a preference as a target distance, so that a pair once learnt stops pulling (Azar et al. 2023, 2310.12036)."""

# P pairs of one micro-batch

from torch import Tensor

from rl_online.algorithms.reduction import weighted_mean


def ipo(
    preferred_P: Tensor,
    rejected_P: Tensor,
    preferred_length_P: Tensor,
    rejected_length_P: Tensor,
    weight_P: Tensor,
    *,
    denominator: float,
    beta: float = 0.1,
) -> Tensor:
    """sum(weight * (g_w - g_l - 1 / (2 beta))^2) / denominator, g a gain (see `dpo`) per token of its answer.

    Per token as TRL has it from the authors: sums would make the square grow with the answers' lengths.
    """
    preferred_mean_P = preferred_P / preferred_length_P.clamp(min=1)
    rejected_mean_P = rejected_P / rejected_length_P.clamp(min=1)
    loss_P = (preferred_mean_P - rejected_mean_P - 1 / (2 * beta)).square()
    return weighted_mean(loss_P, weight_P, denominator=denominator)
