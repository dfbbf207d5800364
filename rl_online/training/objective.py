"""The loss of one optimizer step: four streams, each over its own global count, summed.

The counts cover the whole step, however many micro-batches and ranks share it, so their losses add up to the same.
Credit was assigned before: no term here knows where an advantage comes from.
"""

# K trained tokens of one micro-batch, S its samples, P its pairs

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rl_online.algorithms import base_kl, cross_entropy, dpo, ipo, kto, policy_gradient
from rl_online.algorithms.dr_grpo import constant_denominator
from rl_online.algorithms.reduction import weighted_mean
from rl_online.rewards.update_config import SEQUENCE_LOSSES, UpdateConfig
from rl_online.training.policy_losses import RewardedTokens, is_pushed, normalised, policy_loss
from rl_online.training.samples import Stream, TrainingSample, Weight

Members = Sequence[tuple[TrainingSample, Tensor]]  # samples of one stream with their log-probabilities


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """What one optimizer step minimises."""

    config: UpdateConfig
    counts: Mapping[Stream, float]  # denominators over the whole step; a stream nobody feeds has 0
    num_taught: float = 0.0  # and that of the other reference of ref_kl: tokens with a teacher
    kto_reference_point: float = 0.0

    @classmethod
    def of(
        cls, samples: Sequence[TrainingSample], config: UpdateConfig, *, kto_reference_point: float = 0.0
    ) -> "Objective":
        """Of all samples of the step."""
        counts = {
            stream: _count(stream, [one for one in samples if stream in one.weights], config) for stream in Stream
        }
        num_taught = sum(len(one.positions) for one in samples if one.teaching is not None)
        return cls(config=config, counts=counts, num_taught=num_taught, kto_reference_point=kto_reference_point)

    def terms(
        self, logp_K: Tensor, samples: Sequence[TrainingSample], divergence_K: Tensor | None = None
    ) -> dict[str, Tensor]:
        """The weighted loss terms of a micro-batch. `logp_K` holds the samples' trained tokens one after the other,
        `divergence_K` those of its taught samples alone; without it what a teacher says is no part of the loss.

        Named by stream; reinforce's pull to the sampler stands beside its `rl` as `pull`, and of ref_kl the teacher
        beside the base as `distill`.
        """
        parts = list(zip(samples, logp_K.split([len(sample.positions) for sample in samples]), strict=True))
        makers = {Stream.RL: self._rl, Stream.REF_KL: self._ref_kl, Stream.PREF: self._pref, Stream.CE: self._ce}
        terms: dict[str, Tensor] = {}
        for stream, make in makers.items():
            if members := [(sample, part) for sample, part in parts if stream in sample.weights]:
                terms |= make(members)
        taught = [sample for sample in samples if sample.teaching is not None]
        if taught and divergence_K is not None:
            terms |= self._distill(taught, divergence_K)
        return terms

    def pushes(self, logp_K: Tensor, samples: Sequence[TrainingSample]) -> Tensor:
        """Which tokens of `rl` samples the loss still moves: False where a mask or clip cut their gradient."""
        parts = logp_K.split([len(sample.positions) for sample in samples])
        return is_pushed(self.config, _rewarded(list(zip(samples, parts, strict=True))))

    def _rl(self, members: Members) -> dict[str, Tensor]:
        config, denominator = self.config, self.counts[Stream.RL]
        rl = normalised(config, _rewarded(members))
        terms = {"rl": policy_loss(config, rl, denominator=denominator)}
        if config.behaviour_pull and config.policy_loss == "reinforce":
            pull = policy_gradient.behaviour_pull(rl.logp_K, rl.behaviour_K, rl.weight_K, denominator=denominator)
            terms["pull"] = config.behaviour_pull * pull
        return terms

    def _ref_kl(self, members: Members) -> dict[str, Tensor]:
        config, denominator = self.config, self.counts[Stream.REF_KL]
        logp_K = torch.cat([part for _, part in members])
        base_K = _values([sample.base for sample, _ in members], logp_K)
        weight_K = _per_token([(sample, sample.weights[Stream.REF_KL]) for sample, _ in members], logp_K)
        if config.base_kl_estimator == "k2":
            kl = base_kl.kl_policy_to_base_k2(logp_K, base_K, weight_K, denominator=denominator)
        else:
            behaviour_K = _values([sample.behaviour for sample, _ in members], logp_K)  # of who drew the tokens
            kl = base_kl.kl_policy_to_base_ratio_k3(logp_K, behaviour_K, base_K, weight_K, denominator=denominator)
        return {Stream.REF_KL: config.base_kl * kl}

    def _distill(self, taught: Sequence[TrainingSample], divergence_K: Tensor) -> dict[str, Tensor]:
        weights = [(sample, sample.teaching.weight) for sample in taught if sample.teaching is not None]
        weight_K = _per_token(weights, divergence_K)
        mean = weighted_mean(divergence_K, weight_K, denominator=self.num_taught)
        return {"distill": self.config.distill_weight * mean}

    def _pref(self, members: Members) -> dict[str, Tensor]:
        """Single answers by KTO, pairs by the loss of the config; each single and each pair counts once."""
        singles = [(sample, part) for sample, part in members if sample.pair is None]
        chosen = [(sample, part) for sample, part in members if sample.pair is not None and sample.is_chosen]
        rejected = {sample.pair: (sample, part) for sample, part in members if not sample.is_chosen}
        losses = [self._kto(singles)] if singles else []
        if chosen:
            losses.append(self._pairs(chosen, [rejected[sample.pair] for sample, _ in chosen]))
        return {Stream.PREF: self.config.kto_weight * sum(losses[1:], losses[0])}

    def _kto(self, members: Members) -> Tensor:
        config = self.config
        gain_S = _gains(members)
        is_good_S = torch.tensor([_scalar(sample.advantage) > 0 for sample, _ in members], device=gain_S.device)
        weight_S = _per_sample([sample.weights[Stream.PREF] for sample, _ in members], gain_S)
        knobs = {"beta": config.kto_beta, "desirable": config.kto_desirable, "undesirable": config.kto_undesirable}
        denominator = self.counts[Stream.PREF]
        if config.pref_loss == "apo_zero":
            return kto.apo_zero_unpaired(gain_S, is_good_S, weight_S, denominator=denominator, **knobs)
        return kto.kto(
            gain_S, is_good_S, weight_S, reference_point=self.kto_reference_point, denominator=denominator, **knobs
        )

    def _pairs(self, chosen: Members, rejected: Members) -> Tensor:
        config, denominator = self.config, self.counts[Stream.PREF]
        chosen_P, rejected_P = _gains(chosen), _gains(rejected)
        weight_P = _per_sample([sample.weights[Stream.PREF] for sample, _ in rejected], chosen_P)
        if config.pref_loss == "ipo":
            return ipo.ipo(
                chosen_P,
                rejected_P,
                _lengths(chosen, chosen_P),
                _lengths(rejected, chosen_P),
                weight_P,
                denominator=denominator,
                beta=config.dpo_beta,
            )
        loss = dpo.robust_dpo if config.pref_loss == "robust_dpo" else dpo.dpo
        return loss(
            chosen_P,
            rejected_P,
            weight_P,
            denominator=denominator,
            beta=config.dpo_beta,
            label_smoothing=config.label_smoothing,
        )

    def _ce(self, members: Members) -> dict[str, Tensor]:
        logp_K = torch.cat([part for _, part in members])
        weight_K = _per_token([(sample, sample.weights[Stream.CE]) for sample, _ in members], logp_K)
        loss = cross_entropy.cross_entropy(logp_K, weight_K, denominator=self.counts[Stream.CE])
        return {Stream.CE: self.config.ce_weight * loss}


def behaviour_of(samples: Sequence[TrainingSample]) -> Tensor:
    """Recorded log-probabilities of ratio samples, one after the other."""
    return torch.tensor([value for sample in samples for value in sample.behaviour or []], dtype=torch.float32)


def _count(stream: Stream, samples: Sequence[TrainingSample], config: UpdateConfig) -> float:
    if stream is Stream.PREF:
        return sum(sample.is_chosen for sample in samples)  # a pair counts once
    if stream is Stream.RL and (config.policy_loss in SEQUENCE_LOSSES or config.loss_norm == "sequences"):
        return len(samples)
    if stream is Stream.RL and config.loss_norm == "constant":
        return constant_denominator(len(samples), max_length=config.max_response_tokens)
    return sum(len(sample.positions) for sample in samples)


def _rewarded(members: Members) -> RewardedTokens:
    logp_K = torch.cat([part for _, part in members]) if members else torch.zeros(0)
    behaviour_K = _values([sample.behaviour for sample, _ in members], logp_K)
    return RewardedTokens(
        logp_K=logp_K,
        behaviour_K=behaviour_K,
        old_K=_values([sample.proximal or sample.behaviour for sample, _ in members], logp_K),
        advantage_K=_per_token([(sample, sample.advantage) for sample, _ in members], logp_K),
        weight_K=_per_token([(sample, sample.weights[Stream.RL]) for sample, _ in members], logp_K),
        lengths_S=torch.tensor(
            [len(sample.positions) for sample, _ in members], dtype=torch.int64, device=logp_K.device
        ),
    )


def _gains(members: Members) -> Tensor:
    return torch.stack([part.sum() - sample.reference for sample, part in members])


def _lengths(members: Members, like: Tensor) -> Tensor:
    return torch.tensor([float(len(part)) for _, part in members], device=like.device)


def _values(rows: Sequence[Sequence[float] | None], like: Tensor) -> Tensor:
    return torch.tensor([value for row in rows for value in row or []], dtype=torch.float32).to(like.device)


def _per_token(values: Sequence[tuple[TrainingSample, Weight]], like: Tensor) -> Tensor:
    """A sample's number at each of its trained tokens, or the number it has for each."""
    spread = [
        one
        for sample, value in values
        for one in (value if isinstance(value, list) else [value] * len(sample.positions))
    ]
    return torch.tensor(spread, dtype=torch.float32, device=like.device)


def _per_sample(values: Sequence[Weight], like: Tensor) -> Tensor:
    return torch.tensor([_scalar(value) for value in values], device=like.device)


def _scalar(value: Weight) -> float:
    """Of a sample as a whole: the mean where each token has its own."""
    return sum(value) / len(value) if isinstance(value, list) else value
