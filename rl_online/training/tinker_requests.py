"""Our samples and losses in the types of the `tinker` SDK. Pure: nothing is sent.

Its losses are sums over tokens of a sequence that is shifted by one (tinker-docs.thinkingmachines.ai/tinker/losses), so
our denominators go into weights and advantages. What it has no word for is refused, never approximated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tinker import types

from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.errors import ContradictoryUpdate
from rl_online.training.objective import Objective
from rl_online.training.samples import Stream, TrainingSample, Weight

CROSS_ENTROPY = "cross_entropy"
RATIO_LOSSES = {"reinforce": "importance_sampling", "ppo_clip": "ppo", "dapo": "ppo", "cispo": "cispo"}


@dataclass(frozen=True, kw_only=True, slots=True)
class LossRequest:
    """The arguments of one `forward_backward`."""

    places: list[int]  # of its samples among those asked about
    data: list[types.Datum]
    loss_fn: Any  # types.LossFnType
    loss_fn_config: dict[str, float | str] | None = None


def refuse_for_tinker(config: UpdateConfig) -> None:
    """Raises ContradictoryUpdate, naming the setting and what would be right."""
    if config.policy_loss not in RATIO_LOSSES:
        raise ContradictoryUpdate(
            f"policy_loss is {config.policy_loss!r}, which tinker cannot express; choose from {tuple(RATIO_LOSSES)}"
        )
    wrong = {
        "correction": (config.correction, "none"),
        "sequence_mask": (config.sequence_mask, "none"),
        "optimizer": (config.optimizer, "adamw"),
        "base_kl": (config.base_kl, 0),
        "distill_weight": (config.distill_weight, 0),
    }
    if config.policy_loss == "reinforce":
        wrong["behaviour_pull"] = (config.behaviour_pull, 0)
    if config.policy_loss == "ppo_clip":
        wrong["dual_clip"] = (config.dual_clip, 0)
    for name, (value, right) in wrong.items():
        if value != right:
            raise ContradictoryUpdate(f"{name} is {value!r}, which tinker cannot express; set it to {right!r}")
    if config.loss_norm == "sequences":
        raise ContradictoryUpdate("loss_norm is 'sequences', which tinker cannot express; choose tokens or constant")


def loss_requests(samples: Sequence[TrainingSample], objective: Objective) -> list[LossRequest]:
    """Whose losses add up to the objective's. Raises ContradictoryUpdate for samples that tinker has no loss for."""
    config = objective.config
    refuse_for_tinker(config)
    by_stream: dict[Stream, list[int]] = {}
    for place, sample in enumerate(samples):
        if len(sample.weights) != 1 or (stream := next(iter(sample.weights))) not in (Stream.CE, Stream.RL):
            raise ContradictoryUpdate(f"a sample feeds {sorted(sample.weights)}, which tinker has no loss for")
        by_stream.setdefault(stream, []).append(place)
    requests = []
    if places := by_stream.get(Stream.CE):
        count = objective.counts[Stream.CE]
        data = [imitated(samples[place], config.ce_weight / count) for place in places]
        requests.append(LossRequest(places=places, data=data, loss_fn=CROSS_ENTROPY))
    if places := by_stream.get(Stream.RL):
        data = [rewarded(samples[place], config, 1 / objective.counts[Stream.RL]) for place in places]
        loss_fn = RATIO_LOSSES[config.policy_loss]
        requests.append(LossRequest(places=places, data=data, loss_fn=loss_fn, loss_fn_config=_thresholds(config)))
    return requests


def imitated(sample: TrainingSample, scale: float) -> types.Datum:
    """For cross-entropy; also what a pass without a gradient is asked with."""
    weights = [scale * one for one in _each(sample, sample.weights.get(Stream.CE, 1.0))]
    return _datum(sample, weights=_spread(sample, weights))


def rewarded(sample: TrainingSample, config: UpdateConfig, scale: float) -> types.Datum:
    """For a loss by a ratio: to the sampler, or to the trainer before its first step where the loss wants that."""
    if sample.temperature != 1.0:
        raise ContradictoryUpdate(
            f"a sample was drawn at temperature {sample.temperature:g}; tinker computes at 1 only"
        )
    behaviour = sample.behaviour if not config.needs_proximal else sample.proximal or sample.behaviour
    assert behaviour is not None, "an rl sample carries the log-probabilities it was drawn with"
    weights, advantages = _each(sample, sample.weights[Stream.RL]), _each(sample, sample.advantage)
    scaled = [scale * weight * advantage for weight, advantage in zip(weights, advantages, strict=True)]
    return _datum(sample, logprobs=_spread(sample, behaviour), advantages=_spread(sample, scaled))


def adam_params(config: UpdateConfig, *, lr_scale: float) -> types.AdamParams:
    return types.AdamParams(
        learning_rate=config.learning_rate * lr_scale,
        beta1=config.adam_beta1,
        beta2=config.adam_beta2,
        eps=config.adam_epsilon,
        weight_decay=config.weight_decay,
        grad_clip_norm=config.grad_clip,
    )


def _thresholds(config: UpdateConfig) -> dict[str, float | str] | None:
    """Both are ratios themselves, not distances from 1."""
    if config.policy_loss == "reinforce":
        return None
    if config.policy_loss == "cispo":
        return {"clip_low_threshold": 0.0, "clip_high_threshold": config.ratio_cap}
    return {"clip_low_threshold": 1 - config.clip_low, "clip_high_threshold": 1 + config.clip_high}


def _datum(sample: TrainingSample, **inputs: list[float]) -> types.Datum:
    """Position i of the input predicts token i + 1.

    Example: tokens [5, 6, 7], trained [2]: model_input [5, 6], target_tokens [6, 7], weights [0, w]
    """
    tensors: dict[str, Any] = {"target_tokens": sample.token_ids[1:], **inputs}
    return types.Datum(model_input=types.ModelInput.from_ints(sample.token_ids[:-1]), loss_fn_inputs=tensors)


def _each(sample: TrainingSample, value: Weight) -> list[float]:
    return value if isinstance(value, list) else [value] * len(sample.positions)


def _spread(sample: TrainingSample, values: Sequence[float]) -> list[float]:
    """Of its trained tokens, with 0 at all others, shifted as `_datum` says."""
    found = [0.0] * (len(sample.token_ids) - 1)
    for position, value in zip(sample.positions, values, strict=True):
        found[position - 1] = value
    return found
