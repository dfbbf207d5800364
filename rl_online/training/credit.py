"""What each sample of a batch is credited with, before any trainer sees it.

`baseline` leaves what was sealed: reward minus the running mean of its slice. The others compare the answers to one
prompt, which carry the same `group`. Here alone the name of such a method matters. Before either, an answer that runs
into the length limit may lose reward.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from rl_online.algorithms.dapo import overlong_penalty
from rl_online.algorithms.dr_grpo import dr_grpo_advantage
from rl_online.algorithms.groups import is_alive
from rl_online.algorithms.grpo import grpo_advantage
from rl_online.algorithms.on_policy_distillation import distillation_advantage
from rl_online.algorithms.reinforce_plus_plus import reinforce_plus_plus_baseline
from rl_online.algorithms.rloo import rloo_advantage
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.samples import Stream, TrainingSample, Weight


@dataclass(frozen=True, kw_only=True, slots=True)
class Credited:
    """Samples with their advantages."""

    samples: list[TrainingSample]
    num_dead: int  # answers of groups without a difference: they leave `rl` and its denominator


def assign_credit(samples: Sequence[TrainingSample], config: UpdateConfig) -> Credited:
    """Advantages by group where the config asks for them. A group of equal rewards, or of one, teaches nothing.

    A correction is in no group and keeps what was sealed.
    """
    places = [place for place, one in enumerate(samples) if Stream.RL in one.weights and not one.is_correction]
    samples = _less_overlong(samples, places, config)
    if config.advantage == "baseline" or not places:
        return Credited(samples=list(samples), num_dead=0)
    members = [samples[place] for place in places]
    group_S = _numbered([one.group or "" for one in members])
    reward_S = torch.tensor([one.reward for one in members], dtype=torch.float64)
    alive = is_alive(reward_S, group_S).tolist()
    credited = dict(zip(places, _advantages(members, reward_S, group_S, config), strict=True))
    dead = {place for place, is_live in zip(places, alive, strict=True) if not (is_live or config.distills_sampled)}
    found = [
        _without_rl(one, config) if place in dead else replace(one, advantage=credited.get(place, one.advantage))
        for place, one in enumerate(samples)
    ]
    return Credited(samples=[one for one in found if one.weights or one.teaching], num_dead=len(dead))


def _less_overlong(
    samples: Sequence[TrainingSample], places: Sequence[int], config: UpdateConfig
) -> Sequence[TrainingSample]:
    """The answers at `places` with DAPO's length penalty in their reward and credit, where the config has a buffer."""
    if not config.overlong_buffer:
        return samples
    lengths_S = torch.tensor([len(samples[place].positions) for place in places], dtype=torch.float64)
    penalty_S = overlong_penalty(lengths_S, max_length=config.max_response_tokens, buffer=config.overlong_buffer)
    found = list(samples)
    for place, penalty in zip(places, penalty_S.tolist(), strict=True):
        one = samples[place]
        credit = one.advantage
        found[place] = replace(
            one,
            reward=one.reward + penalty,
            advantage=[value + penalty for value in credit] if isinstance(credit, list) else credit + penalty,
        )
    return found


def _advantages(
    members: Sequence[TrainingSample], reward_S: torch.Tensor, group_S: torch.Tensor, config: UpdateConfig
) -> list[float]:
    if config.advantage == "reinforce_plus_plus":
        lengths_S = torch.tensor([len(one.positions) for one in members])
        advantage_K = reinforce_plus_plus_baseline(reward_S, group_S, lengths_S)
        return [float(value) for value in advantage_K[lengths_S.cumsum(0) - lengths_S]]
    return [float(value) for value in BY_GROUP[config.advantage](reward_S, group_S)]


BY_GROUP = {"grpo": grpo_advantage, "dr_grpo": dr_grpo_advantage, "rloo": rloo_advantage}


def _numbered(names: Sequence[str]) -> torch.Tensor:
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return torch.tensor([numbers[name] for name in names])


def _without_rl(one: TrainingSample, config: UpdateConfig) -> TrainingSample:
    weights: Mapping[Stream, Weight] = {
        stream: weight
        for stream, weight in one.weights.items()
        if stream is not Stream.RL and (stream is not Stream.REF_KL or config.kl_on_dead_groups)
    }
    return replace(one, weights=weights, advantage=0.0)


def with_opinions(
    samples: Sequence[TrainingSample],
    config: UpdateConfig,
    score: Callable[[Sequence[TrainingSample]], list[list[float]]] | None,
) -> list[TrainingSample]:
    """Where a teacher's opinion of each sampled token is an advantage: that, on top of what the sample has.

    `score` gives a teacher network's log-probabilities of the trained tokens; None where the batch has what it said.
    """
    if not config.distills_sampled:
        return list(samples)
    in_rl = [one for one in samples if Stream.RL in one.weights]
    said = iter([one.teacher for one in in_rl] if score is None else score(in_rl))
    found = []
    for one in samples:
        teacher = next(said) if Stream.RL in one.weights else None
        if teacher is None or one.behaviour is None:
            found.append(one)
            continue
        opinion = distillation_advantage(
            torch.tensor(one.behaviour), torch.tensor(teacher), coefficient=config.distill_weight
        ).tolist()
        credit = one.advantage if isinstance(one.advantage, list) else [one.advantage] * len(opinion)
        advantage = [mine + more for mine, more in zip(credit, opinion, strict=True)]
        found.append(replace(one, teacher=teacher, advantage=advantage))
    return found
