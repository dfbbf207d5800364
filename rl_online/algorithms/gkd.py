"""GKD: learning a teacher's whole next-token distribution (Agarwal et al. 2023, arXiv 2306.13649, equation 1).

Teacher and student share a vocabulary. On the student's own samples this is on-policy distillation with full logits.
"""

# K trained tokens of one micro-batch, V vocabulary, J tokens the teacher named

import math

import torch
from torch import Tensor

from rl_online.algorithms.reduction import weighted_mean

MIN_TAIL = 1e-6  # 1 - sum in float32 knows no smaller rest, and its logarithm must stay finite


def generalised_jsd(
    student_KV: Tensor,
    teacher_KV: Tensor,
    weight_K: Tensor,
    *,
    denominator: float,
    beta: float = 0.5,
    temperature: float = 1.0,
) -> Tensor:
    """sum(weight * D) / denominator, D as `divergences` has it of each token."""
    divergence_K = divergences(student_KV, teacher_KV, beta=beta, temperature=temperature)
    return weighted_mean(divergence_K, weight_K, denominator=denominator)


def divergences(student_KV: Tensor, teacher_KV: Tensor, *, beta: float = 0.5, temperature: float = 1.0) -> Tensor:
    """D of each token, in nats, from logits; the teacher's carry no gradient.

    beta 0: D = KL(teacher to student), mean-seeking. beta 1: D = KL(student to teacher), mode-seeking. Between:
    beta KL(teacher to M) + (1 - beta) KL(student to M), M = beta teacher + (1 - beta) student.
    """
    student_KV = (student_KV / temperature).log_softmax(-1)
    teacher_KV = (teacher_KV.detach() / temperature).log_softmax(-1)
    if beta == 0:
        return _kl(teacher_KV, student_KV)
    if beta == 1:
        return _kl(student_KV, teacher_KV)
    mixture_KV = torch.logaddexp(teacher_KV + math.log(beta), student_KV + math.log1p(-beta))
    return beta * _kl(teacher_KV, mixture_KV) + (1 - beta) * _kl(student_KV, mixture_KV)


def top_kl_teacher_to_student(
    student_KV: Tensor, teacher_ids_KJ: Tensor, teacher_logp_KJ: Tensor, weight_K: Tensor, *, denominator: float
) -> Tensor:
    """sum(weight * sum over J of p_T (log p_T - log p_S)) / denominator, from an engine's top log-probabilities.

    The teacher's other tokens are left out, not renormalised, so a term may be negative; p_S is over all of V. Source:
    verl's `forward_kl_topk`.
    """
    student_KJ = student_KV.log_softmax(-1).gather(-1, teacher_ids_KJ)
    return weighted_mean(_kl(teacher_logp_KJ, student_KJ), weight_K, denominator=denominator)


def kl_top_and_tail(student_KV: Tensor, teacher_ids_KJ: Tensor, teacher_logp_KJ: Tensor) -> Tensor:
    """KL(teacher to student) of each token, all that the teacher did not name taken together as one more token.

    Never negative and never above the KL over all of V, for it is the KL of coarser distributions. A token of which
    the teacher named fewer than J is filled up with log-probabilities of -inf, under any id.
    """
    student_KJ = student_KV.log_softmax(-1).gather(-1, teacher_ids_KJ)
    is_named_KJ = teacher_logp_KJ > -torch.inf
    teacher_tail_K = (1 - teacher_logp_KJ.exp().sum(-1)).clamp(min=0.0)
    student_tail_K = (1 - torch.where(is_named_KJ, student_KJ.exp(), 0.0).sum(-1)).clamp(min=MIN_TAIL)
    tail_K = torch.xlogy(teacher_tail_K, teacher_tail_K) - teacher_tail_K * student_tail_K.log()
    return _kl(teacher_logp_KJ, student_KJ) + tail_K


def _kl(from_KV: Tensor, to_KV: Tensor) -> Tensor:
    """KL of two rows of log-probabilities; a token that `from` excludes (-inf) adds nothing."""
    gap_KV = torch.where(from_KV == -torch.inf, 0.0, from_KV - to_KV)
    return (from_KV.exp() * gap_KV).sum(-1)
