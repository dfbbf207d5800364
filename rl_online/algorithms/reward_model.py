"""A reward model's loss: scores whose difference says which answer people prefer (Bradley and Terry 1952)."""

# P pairs of one micro-batch

from torch import Tensor
from torch.nn.functional import logsigmoid

from rl_online.algorithms.reduction import weighted_mean


def bradley_terry(
    preferred_score_P: Tensor,
    rejected_score_P: Tensor,
    weight_P: Tensor,
    *,
    denominator: float,
    margin_P: Tensor | float = 0.0,
    centering: float = 0.0,
) -> Tensor:
    """sum(weight * (-log sigma(s_w - s_l - margin) + centering * (s_w + s_l)^2)) / denominator.

    `margin_P` asks for more distance where people were surer (Llama 2, arXiv 2307.09288). Only differences are learnt;
    `centering` (.01 is usual) holds the scores around 0 so that they can be compared between prompts.
    """
    loss_P = -logsigmoid(preferred_score_P - rejected_score_P - margin_P)
    if centering:
        loss_P = loss_P + centering * (preferred_score_P + rejected_score_P).square()
    return weighted_mean(loss_P, weight_P, denominator=denominator)
