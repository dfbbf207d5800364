"""REINFORCE on data that a slightly older policy sampled, kept near it by a mask and a pull.

Loss per token: -keep * A * exp(l - b) + tau * (l - b)^2 over a global token count ("DPPO-binary-TV + K2", the default
of prime-rl). l is the log-probability now, b that at sampling, A the advantage. The ratio to b is in the loss already:
a truncated weight exp(o - b) on top would count the mismatch twice.

Two masks, two denominators (see `reduction`): tokens the policy did not choose are not in these tensors at all, so they
are in no count either; tokens the mask rejects leave the sum but stay in the denominator.
"""

# K trained tokens of one micro-batch

from torch import Tensor

from rl_online.algorithms.reduction import kept, log_ratio, weighted_mean


def dppo_keep(
    logp_K: Tensor, behaviour_K: Tensor, advantage_K: Tensor, *, high: float = 0.2, low: float = 0.2
) -> Tensor:
    """False where a token's probability already moved beyond the limit in the direction its advantage asks for."""
    change_K = logp_K.detach().exp() - behaviour_K.exp()
    rose_enough = (advantage_K > 0) & (change_K > high)
    fell_enough = (advantage_K < 0) & (-change_K > low)
    return ~(rose_enough | fell_enough)


def reinforce(
    logp_K: Tensor, behaviour_K: Tensor, advantage_K: Tensor, weight_K: Tensor, keep_K: Tensor, *, denominator: float
) -> Tensor:
    """-sum(keep * weight * A * exp(l - b)) / denominator; 0 when there is no token.

    `denominator` counts the trained tokens of the whole optimizer step, so splitting that step changes nothing.
    """
    gain_K = advantage_K * log_ratio(logp_K, behaviour_K, keep_K).exp()
    return -weighted_mean(kept(gain_K, keep_K), weight_K, denominator=denominator)


def behaviour_pull(logp_K: Tensor, behaviour_K: Tensor, weight_K: Tensor, *, denominator: float) -> Tensor:
    """sum(weight * (l - b)^2) / denominator: twice the k2 estimate of the KL from the policy to its sampler."""
    return weighted_mean((logp_K - behaviour_K).square(), weight_K, denominator=denominator)
