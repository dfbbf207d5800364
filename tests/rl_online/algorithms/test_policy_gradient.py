import math

import pytest
import torch
from torch import ones, tensor, zeros

from rl_online.algorithms.policy_gradient import behaviour_pull, dppo_keep, reinforce

LIMITS = {"high": 0.2, "low": 0.2}


def probabilities(*values):
    return tensor(values, dtype=torch.float64).log()


def test_the_mask_drops_a_good_token_that_rose_and_a_bad_token_that_fell_too_far():
    now, before = probabilities(0.8, 0.8, 0.1, 0.1, 0.6), probabilities(0.5, 0.5, 0.5, 0.5, 0.5)
    advantage = tensor([1.0, -1.0, -1.0, 1.0, 1.0])
    assert dppo_keep(now, before, advantage, **LIMITS).tolist() == [False, True, False, True, True]


def test_on_policy_the_loss_is_minus_the_mean_advantage_per_token():
    logp = probabilities(0.3, 0.4)
    assert reinforce(logp, logp, tensor([0.75, -0.25]), ones(2), ones(2).bool(), denominator=2).item() == -0.25


def test_a_ratio_multiplies_the_advantage_once():
    # behaviour .2, now .3: ratio 1.5, advantage 2: gain 3 over 1 token
    loss = reinforce(probabilities(0.3), probabilities(0.2), tensor([2.0]), ones(1), ones(1).bool(), denominator=1)
    assert loss.item() == pytest.approx(-3.0)


def test_a_rejected_token_leaves_the_sum_but_stays_in_the_denominator():
    keep = tensor([True, False])
    logp = probabilities(0.5, 0.5)
    assert reinforce(logp, logp, tensor([2.0, 2.0]), ones(2), keep, denominator=2).item() == -1.0


def test_a_rejected_token_far_off_gives_no_nan_anywhere():
    logp = tensor([-1.0, 0.0], requires_grad=True)
    behaviour = tensor([-1.0, -math.inf])
    loss = reinforce(logp, behaviour, tensor([1.0, 1.0]), ones(2), tensor([True, False]), denominator=2)
    loss.backward()
    assert loss.item() == -0.5
    assert logp.grad.tolist() == [-0.5, 0.0]


def test_all_tokens_rejected_gives_zero_loss_and_zero_gradient():
    logp = probabilities(0.9, 0.9).requires_grad_()
    loss = reinforce(logp, probabilities(0.1, 0.1), ones(2), ones(2), zeros(2).bool(), denominator=2)
    loss.backward()
    assert loss.item() == 0.0
    assert logp.grad.tolist() == [0.0, 0.0]


def test_no_token_at_all_gives_zero():
    none = zeros(0)
    assert reinforce(none, none, none, none, none.bool(), denominator=1).item() == 0.0
    assert behaviour_pull(none, none, none, denominator=1).item() == 0.0


def test_a_global_denominator_makes_micro_batches_add_up():
    # windows {1, 2, 3} and {10}: the mean over all tokens is 4, the mean of means would be 6
    advantage = -tensor([1.0, 2.0, 3.0, 10.0])
    logp = zeros(4)
    parts = [slice(0, 3), slice(3, 4)]
    losses = [
        reinforce(logp[part], logp[part], advantage[part], ones(4)[part], ones(4).bool()[part], denominator=4).item()
        for part in parts
    ]
    assert sum(losses) == 4.0


def test_the_gradient_on_policy_is_minus_advantage_over_tokens():
    logp = probabilities(0.3, 0.4).requires_grad_()
    loss = reinforce(logp, logp.detach(), tensor([0.75, -0.25]), ones(2), ones(2).bool(), denominator=2)
    loss.backward()
    assert logp.grad.tolist() == pytest.approx([-0.375, 0.125])


def test_the_pull_is_the_squared_gap_per_token():
    # gaps .1 and -.3: (.01 + .09) / 2
    assert behaviour_pull(tensor([-1.0, -2.0]), tensor([-1.1, -1.7]), ones(2), denominator=2).item() == pytest.approx(
        0.05
    )
