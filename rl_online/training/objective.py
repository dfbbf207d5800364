"""The loss of one optimizer step: named terms from the streams in it, each over its own global count, summed.

The counts cover the whole step, so the terms of its micro-batches add up to the same loss however it is split.
"""

# K trained tokens of one micro-batch, S its samples

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rl_online.algorithms import base_kl, cross_entropy, kto, policy_gradient
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.samples import Stream, TrainingSample


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """What one optimizer step minimises."""

    config: UpdateConfig
    num_rl_tokens: int  # denominators: trained tokens and samples of the whole step
    num_ce_tokens: int
    num_kto_samples: int
    kto_reference_point: float = 0.0

    @classmethod
    def of(
        cls, samples: Sequence[TrainingSample], config: UpdateConfig, *, kto_reference_point: float = 0.0
    ) -> "Objective":
        def tokens(stream: Stream) -> int:
            return sum(len(sample.positions) for sample in samples if sample.stream is stream)

        return cls(
            config=config,
            num_rl_tokens=tokens(Stream.RL),
            num_ce_tokens=tokens(Stream.CE),
            num_kto_samples=sum(sample.stream is Stream.KTO for sample in samples),
            kto_reference_point=kto_reference_point,
        )

    def terms(self, logp_K: Tensor, samples: Sequence[TrainingSample]) -> dict[str, Tensor]:
        """The weighted loss terms of a micro-batch. `logp_K` holds the samples' trained tokens one after the other."""
        parts = logp_K.split([len(sample.positions) for sample in samples])
        by_stream = {
            stream: [(sample, part) for sample, part in zip(samples, parts, strict=True) if sample.stream is stream]
            for stream in Stream
        }
        terms: dict[str, Tensor] = {}
        if by_stream[Stream.RL]:
            terms |= self._rl(by_stream[Stream.RL])
        if by_stream[Stream.KTO]:
            terms["kto"] = self._kto(by_stream[Stream.KTO])
        if by_stream[Stream.CE]:
            terms["ce"] = self._ce(by_stream[Stream.CE])
        return terms

    def _rl(self, pairs: Sequence[tuple[TrainingSample, Tensor]]) -> dict[str, Tensor]:
        config, denominator = self.config, self.num_rl_tokens
        logp_K = torch.cat([part for _, part in pairs])
        behaviour_K = behaviour_of([sample for sample, _ in pairs]).to(logp_K.device)
        advantage_K = _per_token([(sample, sample.advantage) for sample, _ in pairs], logp_K)
        weight_K = _per_token([(sample, sample.weight) for sample, _ in pairs], logp_K)
        keep_K = self.keep(logp_K, behaviour_K, advantage_K)
        terms = {
            "rl": policy_gradient.reinforce(logp_K, behaviour_K, advantage_K, weight_K, keep_K, denominator=denominator)
        }
        if config.behaviour_pull:
            pull = policy_gradient.behaviour_pull(logp_K, behaviour_K, weight_K, denominator=denominator)
            terms["pull"] = config.behaviour_pull * pull
        if config.base_kl:
            base_K = torch.tensor([value for sample, _ in pairs for value in sample.base or []]).to(logp_K.device)
            terms["base_kl"] = config.base_kl * (
                base_kl.kl_policy_to_base_k2(logp_K, base_K, weight_K, denominator=denominator)
                if config.base_kl_estimator == "k2"
                else base_kl.kl_policy_to_base_ratio_k3(logp_K, behaviour_K, base_K, weight_K, denominator=denominator)
            )
        return terms

    def keep(self, logp_K: Tensor, behaviour_K: Tensor, advantage_K: Tensor) -> Tensor:
        return policy_gradient.dppo_keep(
            logp_K, behaviour_K, advantage_K, high=self.config.mask_high, low=self.config.mask_low
        )

    def _kto(self, pairs: Sequence[tuple[TrainingSample, Tensor]]) -> Tensor:
        config = self.config
        gain_S = torch.stack([part.sum() - sample.reference for sample, part in pairs])
        is_good_S = torch.tensor([sample.advantage > 0 for sample, _ in pairs]).to(gain_S.device)
        weight_S = torch.tensor([sample.weight for sample, _ in pairs]).to(gain_S.device)
        return config.kto_weight * kto.kto(
            gain_S,
            is_good_S,
            weight_S,
            reference_point=self.kto_reference_point,
            beta=config.kto_beta,
            desirable=config.kto_desirable,
            undesirable=config.kto_undesirable,
            denominator=self.num_kto_samples,
        )

    def _ce(self, pairs: Sequence[tuple[TrainingSample, Tensor]]) -> Tensor:
        logp_K = torch.cat([part for _, part in pairs])
        weight_K = _per_token([(sample, sample.weight) for sample, _ in pairs], logp_K)
        return self.config.ce_weight * cross_entropy.cross_entropy(logp_K, weight_K, denominator=self.num_ce_tokens)


def behaviour_of(samples: Sequence[TrainingSample]) -> Tensor:
    """Recorded log-probabilities of ratio samples, one after the other."""
    return torch.tensor([value for sample in samples for value in sample.behaviour or []], dtype=torch.float32)


def _per_token(values: Sequence[tuple[TrainingSample, float]], like: Tensor) -> Tensor:
    repeated = [value for sample, value in values for _ in sample.positions]
    return torch.tensor(repeated, dtype=torch.float32, device=like.device)
