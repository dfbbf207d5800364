"""The loss on rewards that a config asks for, on the tokens of one micro-batch.

A choice among `rl_online.algorithms`: which ratio, which correction for data of an older policy, which tokens count.
"""

# K trained tokens of one micro-batch, S its samples

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rl_online.algorithms import (
    cispo,
    dapo,
    dro,
    gspo,
    off_policy,
    on_policy_distillation,
    policy_gradient,
    ppo,
    rloo,
    sequence_ratio,
)
from rl_online.algorithms.reduction import log_ratio, sample_means, sequence_mean_weights, to_tokens
from rl_online.rewards.update_config import SEQUENCE_LOSSES, UpdateConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardedTokens:
    """What such a loss is made of, sample after sample."""

    logp_K: Tensor
    behaviour_K: Tensor  # log-probability at sampling
    old_K: Tensor  # the trainer's own before its first step; that at sampling for a loss that takes its ratio to it
    advantage_K: Tensor
    weight_K: Tensor
    lengths_S: Tensor  # int64

    @property
    def first_S(self) -> Tensor:
        """The place of each sample's first token."""
        return self.lengths_S.cumsum(0) - self.lengths_S


def normalised(config: UpdateConfig, rl: RewardedTokens) -> RewardedTokens:
    """The same tokens, each weighing 1 / its sample's length where `config.loss_norm` counts samples."""
    if config.loss_norm != "sequences":
        return rl
    return replace(rl, weight_K=rl.weight_K * sequence_mean_weights(rl.lengths_S))


def policy_loss(config: UpdateConfig, rl: RewardedTokens, *, denominator: float) -> Tensor:
    """The sum over the micro-batch of what `normalised` made, over `denominator`.

    That counts what `config.loss_norm` says in the whole step.
    """
    if config.policy_loss in SEQUENCE_LOSSES:
        return _sequence_loss(config, rl, denominator=denominator)
    keep_K = kept_tokens(config, rl)
    if config.policy_loss == "reinforce":
        return policy_gradient.reinforce(
            rl.logp_K, rl.behaviour_K, rl.advantage_K, rl.weight_K, keep_K, denominator=denominator
        )
    if config.policy_loss == "dro":
        return dro.dro(rl.logp_K, rl.old_K, rl.advantage_K, rl.weight_K, denominator=denominator, beta=config.dro_beta)
    weight_K = rl.weight_K * correction_weight(config, rl)
    if config.policy_loss == "cispo":
        return cispo.cispo(
            rl.logp_K, rl.old_K, rl.advantage_K, weight_K, keep_K, denominator=denominator, ratio_high=config.ratio_cap
        )
    if config.policy_loss == "dapo":
        return dapo.dapo(
            rl.logp_K,
            rl.old_K,
            rl.advantage_K,
            weight_K,
            keep_K,
            denominator=denominator,
            clip_low=config.clip_low,
            clip_high=config.clip_high,
        )
    return ppo.clipped_surrogate(
        rl.logp_K,
        rl.old_K,
        rl.advantage_K,
        weight_K,
        keep_K,
        denominator=denominator,
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        dual_clip=config.dual_clip or None,
    )


def kept_tokens(config: UpdateConfig, rl: RewardedTokens) -> Tensor:
    """False for tokens rejected as off-policy, alone or with their answer: they leave the sum, stay in the count."""
    keep_K = torch.ones_like(rl.logp_K, dtype=torch.bool)
    if config.correction == "dppo":
        keep_K = policy_gradient.dppo_keep(
            rl.logp_K, rl.behaviour_K, rl.advantage_K, high=config.mask_high, low=config.mask_low
        )
    elif config.correction == "one_sided":
        keep_K = on_policy_distillation.one_sided_keep(rl.logp_K, rl.behaviour_K, low=config.mask_low)
    elif config.correction == "opsm":
        keep_S = sequence_ratio.opsm_keep(
            rl.logp_K,
            rl.behaviour_K,
            sample_means(rl.advantage_K, rl.lengths_S),
            rl.lengths_S,
            threshold=config.opsm_delta,
        )
        keep_K = to_tokens(keep_S, rl.lengths_S)
    if config.sequence_mask == "none":
        return keep_K
    return keep_K & to_tokens(_kept_answers(config, rl), rl.lengths_S)


def _kept_answers(config: UpdateConfig, rl: RewardedTokens) -> Tensor:
    """By `config.sequence_mask`: False for an answer whose sampler was too far from the trainer before its steps."""
    if config.sequence_mask == "mean_ratio":
        return sequence_ratio.mean_ratio_keep(
            rl.old_K, rl.behaviour_K, rl.lengths_S, low=config.sequence_ratio_low, high=config.sequence_ratio_high
        )
    return sequence_ratio.sum_ratio_keep(
        rl.old_K, rl.behaviour_K, rl.lengths_S, max_per_root_token=config.max_per_root_token
    )


def correction_weight(config: UpdateConfig, rl: RewardedTokens) -> Tensor:
    """exp(o - b) in bounds: what data of another policy counts; 1 where nothing corrects."""
    if config.policy_loss == "decoupled" or config.correction == "tis":
        return off_policy.tis_weight(rl.old_K, rl.behaviour_K, cap=config.tis_cap)
    if config.correction == "icepop":
        return off_policy.icepop_weight(rl.old_K, rl.behaviour_K, low=config.icepop_low, high=config.icepop_high)
    return torch.ones_like(rl.logp_K)


def is_pushed(config: UpdateConfig, rl: RewardedTokens) -> Tensor:
    """True for tokens whose gradient is not cut, be it by a mask, a weight of 0 or the clip; carries no gradient."""
    keep_K = kept_tokens(config, rl)
    if config.policy_loss not in ("ppo_clip", "dapo", "decoupled"):
        return keep_K & (correction_weight(config, rl) > 0) if config.correction == "icepop" else keep_K
    ratio_K = log_ratio(rl.logp_K, rl.old_K, keep_K).exp()
    is_high = (rl.advantage_K > 0) & (ratio_K > 1 + config.clip_high)
    is_low = (rl.advantage_K < 0) & (ratio_K < 1 - config.clip_low)
    dual_clip = 0.0 if config.policy_loss == "dapo" else config.dual_clip
    is_capped = (rl.advantage_K < 0) & (ratio_K > (dual_clip or torch.inf))
    return keep_K & (correction_weight(config, rl) > 0) & ~(is_high | is_low | is_capped)


def _sequence_loss(config: UpdateConfig, rl: RewardedTokens, *, denominator: float) -> Tensor:
    """Losses with one ratio for each answer; its credit and weight are those of its first token."""
    keep_K, first_S = kept_tokens(config, rl), rl.first_S
    weight_S = torch.where(keep_K[first_S], rl.weight_K[first_S], 0.0)
    advantage_S = rl.advantage_K[first_S]
    if config.policy_loss == "gspo":
        return gspo.gspo(
            rl.logp_K,
            rl.old_K,
            advantage_S,
            weight_S,
            rl.lengths_S,
            denominator=denominator,
            clip_low=config.gspo_clip_low,
            clip_high=config.gspo_clip_high,
        )
    return rloo.sequence_surrogate(
        rl.logp_K,
        rl.old_K,
        advantage_S,
        weight_S,
        rl.lengths_S,
        denominator=denominator,
        clip_low=config.clip_low,
        clip_high=config.clip_high,
    )
