"""Faults that public trainers had, each as a small input with the right answer; named after where it was reported.

Those about padding, token ids, resuming and weights are tested where our code does that work.
"""

import math

import pytest
import torch
from torch import ones, tensor, zeros

from rl_online.algorithms.base_kl import kl_policy_to_base_ratio_k3
from rl_online.algorithms.groups import is_alive, kl_weight
from rl_online.algorithms.grpo import grpo_advantage
from rl_online.algorithms.kto import kto, mismatched, reference_point
from rl_online.algorithms.off_policy import tis_weight
from rl_online.algorithms.policy_gradient import dppo_keep, reinforce
from rl_online.algorithms.ppo import clipped_surrogate
from rl_online.rewards.update_config import UpdateConfig
from rl_online.serving.protocol import Sampling
from rl_online.serving.sampling import processed_logprobs

LOSSES = tensor([1.0, 2.0, 3.0, 10.0])  # as advantages of -1, -2, -3, -10 on-policy


def micro_loss(part, *, denominator):
    logp = zeros(len(part))
    return reinforce(logp, logp, -part, ones(len(part)), ones(len(part)).bool(), denominator=denominator).item()


def test_trl_3021_windows_of_three_tokens_and_one_give_4_and_not_6():
    assert micro_loss(LOSSES[:3], denominator=4) + micro_loss(LOSSES[3:], denominator=4) == 4.0
    naive = (micro_loss(LOSSES[:3], denominator=3) + micro_loss(LOSSES[3:], denominator=1)) / 2
    assert naive == 6.0


@pytest.mark.parametrize("num_micro_batches", [1, 2, 4])
def test_ms_swift_10117_a_global_mean_is_not_divided_by_the_number_of_micro_batches_again(num_micro_batches):
    weights = tensor([0.5, -0.25, 1.0, 2.0], requires_grad=True)
    whole = reinforce(weights, zeros(4), LOSSES, ones(4), ones(4).bool(), denominator=4)
    (expected,) = torch.autograd.grad(whole, weights)
    for part in torch.arange(4).chunk(num_micro_batches):
        one = weights[part]
        reinforce(
            one, zeros(len(part)), LOSSES[part], ones(len(part)), ones(len(part)).bool(), denominator=4
        ).backward()
    assert torch.allclose(weights.grad, expected, atol=1e-6)
    assert sum(micro_loss(part, denominator=4) for part in LOSSES.chunk(num_micro_batches)) == 4.0


def test_trl_6369_truncated_rows_leave_the_count_too():
    # [2, 2] and a masked row of 2: its tokens are in no tensor, so the count is 2
    assert micro_loss(tensor([2.0, 2.0]), denominator=2) == 2.0
    assert micro_loss(tensor([2.0, 2.0]), denominator=4) == 1.0


def test_trl_3248_when_every_row_is_masked_loss_and_gradient_are_zero():
    weights = ones(3, requires_grad=True)
    none = weights[:0]
    loss = reinforce(none, zeros(0), zeros(0), zeros(0), zeros(0).bool(), denominator=0)
    loss.backward()
    assert loss.item() == 0.0
    assert weights.grad.tolist() == [0.0] * 3


@pytest.mark.parametrize(("kl_on_dead_groups", "kl_gradient_expected"), [(False, False), (True, True)])
def test_trl_5588_a_group_of_equal_rewards_gives_no_policy_gradient(kl_on_dead_groups, kl_gradient_expected):
    rewards, group = tensor([0.1, 0.1, 0.1]), zeros(3).long()
    logp = tensor([-1.0, -2.0, -3.0], requires_grad=True)
    advantage = grpo_advantage(rewards, group)
    keep = ones(3).bool()
    clipped_surrogate(logp, logp.detach(), advantage, ones(3), keep, denominator=3).backward()
    assert logp.grad.tolist() == [0.0] * 3
    weight = kl_weight(is_alive(rewards, group), kl_on_dead_groups=kl_on_dead_groups)
    kl_policy_to_base_ratio_k3(logp, logp.detach(), logp.detach() - 0.5, weight, denominator=3).backward()
    assert bool(logp.grad.abs().max() > 0) is kl_gradient_expected


def test_trl_1911_of_five_samples_none_is_paired_with_itself():
    assert [4 - index == index for index in range(5)].count(True) == 1  # a reversal pairs the middle one so
    assert mismatched(5) == [1, 2, 3, 4, 0]


def test_trl_1380_a_batch_of_one_label_has_a_finite_loss_and_z_from_all_rows():
    gains = tensor([1.0, 3.0])
    z = reference_point([0.5, 1.5])
    loss = kto(gains, ones(2).bool(), ones(2), reference_point=z, denominator=2)
    # 1 - sigma(.1 * (R - 1)) over the class that is there
    assert loss.item() == pytest.approx((0.5 + 1 / (1 + math.exp(0.2))) / 2)


def test_trl_4159_a_log_probability_at_temperature_point_6():
    logits = tensor([[2.0, 1.0, 0.0]])
    recorded = processed_logprobs(logits, [Sampling(temperature=0.6)])[0, 0]
    assert recorded.item() == pytest.approx(-0.202573, abs=1e-6)
    raw = logits.log_softmax(-1)[0, 0].item()
    assert (raw, raw / 0.6) == (pytest.approx(-0.4076, abs=1e-4), pytest.approx(-0.6793, abs=1e-4))
    trained = (logits / 0.6).log_softmax(-1)[0, 0]
    assert (trained - recorded).exp().item() == pytest.approx(1.0, abs=1e-5)


def test_ms_swift_8442_a_nucleus_raises_the_log_probabilities_of_what_is_in_it():
    probabilities = tensor([[0.5, 0.3, 0.2]])
    recorded = processed_logprobs(probabilities.log(), [Sampling(top_p=0.79)])[0]  # the first two hold .8
    assert recorded[0].item() == pytest.approx(-0.4700, abs=1e-4)
    assert probabilities.log()[0, 0].item() == pytest.approx(-0.6931, abs=1e-4)
    assert (probabilities.log()[0, 0] - recorded[0]).exp().item() == pytest.approx(0.8)
    assert recorded[2].item() == -math.inf


def test_slime_1912_the_mismatch_enters_once():
    # l = o = b + .5; a weight on top of a ratio to b would make e^1
    policy, behaviour, one = tensor([-1.0]), tensor([-1.5]), ones(1)
    bypass = -reinforce(policy, behaviour, one, one, one.bool(), denominator=1).item()
    decoupled = -clipped_surrogate(policy, policy, one, tis_weight(policy, behaviour), one.bool(), denominator=1).item()
    assert (bypass, decoupled) == (pytest.approx(math.exp(0.5)), pytest.approx(math.exp(0.5)))


def test_tinker_cookbook_822_by_default_a_stale_token_stops_where_its_probability_has_moved():
    # from .3 to .55: more than .2 up; unclipped importance sampling would push it on with 1.83 times the weight
    config = UpdateConfig()
    logp, behaviour = tensor([0.55]).log().requires_grad_(), tensor([0.3]).log()
    keep = dppo_keep(logp, behaviour, ones(1), high=config.mask_high, low=config.mask_low)
    loss = reinforce(logp, behaviour, ones(1), ones(1), keep, denominator=1)
    loss.backward()
    assert logp.grad.item() == 0.0
    unclipped = reinforce(logp, behaviour, ones(1), ones(1), ones(1).bool(), denominator=1)
    assert torch.autograd.grad(unclipped, logp)[0].item() == pytest.approx(-0.55 / 0.3)
