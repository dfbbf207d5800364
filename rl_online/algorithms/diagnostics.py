"""How far the policy has moved from the one that sampled its data: numbers for the page and for the brake.

Measured on tokens of the ratio loss, from log-probabilities that carry no gradient.
"""

# K trained tokens of one optimizer step

from dataclasses import dataclass

from torch import Tensor

from rl_online.algorithms.reduction import MAX_LOG_RATIO


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """Distance between the policy and its sampler on the sampled tokens."""

    kl: float  # KL from sampler to policy, k3 estimate: never negative, unbiased because the sampler chose the tokens
    ratio_mean: float  # of exp(l - b); 1 on-policy
    ratio_max: float
    clipped_share: float  # of tokens that the DPPO mask rejected
    ess_share: float  # effective sample size over token count, (sum w)^2 / (N sum w^2) with w the ratio; 1 on-policy
    logp_gap: float  # mean |l - b|


def measure_drift(logp_K: Tensor, behaviour_K: Tensor, keep_K: Tensor) -> Drift | None:
    """None when there is no token."""
    if len(logp_K) == 0:
        return None
    log_ratio_K = (logp_K - behaviour_K).double().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio_K = log_ratio_K.exp()
    return Drift(
        kl=float((ratio_K - 1 - log_ratio_K).mean()),
        ratio_mean=float(ratio_K.mean()),
        ratio_max=float(ratio_K.max()),
        clipped_share=1 - float(keep_K.double().mean()),
        ess_share=float(ratio_K.sum().square() / (len(ratio_K) * ratio_K.square().sum())),
        logp_gap=float(log_ratio_K.abs().mean()),
    )
