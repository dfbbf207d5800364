"""PPO's clip and its relatives, worked by hand. Ratios are to an old log-probability of 0."""

import math

import pytest
import torch
from torch import ones, tensor, zeros

from rl_online.algorithms.cispo import cispo
from rl_online.algorithms.dapo import dapo
from rl_online.algorithms.dr_grpo import constant_denominator
from rl_online.algorithms.dro import dro
from rl_online.algorithms.gspo import gspo
from rl_online.algorithms.ppo import clipped_surrogate
from rl_online.algorithms.reduction import sequence_mean_weights
from rl_online.algorithms.rloo import sequence_surrogate
from rl_online.algorithms.value_loss import clipped_value_loss


def ratios(*values):
    return tensor(values, dtype=torch.float64).log().requires_grad_()


def loss_and_gradient(loss, logp):
    loss.backward()
    return loss.item(), logp.grad.tolist()


def per_token(function, logp, advantages, **options):
    """Mean over tokens, old log-probabilities 0, nothing dropped. d loss / d logp is (d loss / d ratio) * ratio."""
    count = len(logp)
    everything = (zeros(count).double(), tensor(advantages).double(), ones(count).double(), ones(count).bool())
    return loss_and_gradient(function(logp, *everything, denominator=count, **options), logp)


def test_ppo_limits_what_one_token_gains_and_never_what_it_costs():
    # gains 2.4 (not 3) and 2; a bad token that rose costs its full 1.5
    loss, gradient = per_token(clipped_surrogate, ratios(1.5, 1.0, 1.5), [2.0, 2.0, -1.0])
    assert loss == pytest.approx((-2.4 - 2.0 + 1.5) / 3)
    assert gradient == pytest.approx([0.0, -2 / 3, 0.5])


def test_the_dual_clip_caps_what_a_bad_token_costs():
    loss, gradient = per_token(clipped_surrogate, ratios(10.0, 2.0), [-1.0, -1.0], dual_clip=3.0)
    assert loss == pytest.approx((3.0 + 2.0) / 2)
    assert gradient == pytest.approx([0.0, 1.0])


def test_dapo_has_more_room_upwards():
    loss, gradient = per_token(dapo, ratios(1.25, 1.5, 0.5), [1.0, 1.0, -1.0])
    assert loss == pytest.approx((-1.25 - 1.28 + 0.8) / 3)
    assert gradient == pytest.approx([-1.25 / 3, 0.0, 0.0])


def test_cispo_clips_the_weight_and_keeps_every_tokens_gradient():
    loss, gradient = per_token(cispo, ratios(8.0, 0.5), [1.0, -1.0])
    assert loss == pytest.approx((-5 * math.log(8) + 0.5 * math.log(0.5)) / 2)
    assert gradient == pytest.approx([-2.5, 0.25])


def test_cispo_with_limits_counted_from_one_as_in_verl():
    loss, gradient = per_token(cispo, ratios(2.0, 0.5), [1.0, -1.0], ratio_low=0.9, ratio_high=1.2)
    assert loss == pytest.approx((-1.2 * math.log(2) + 0.9 * math.log(0.5)) / 2)
    assert gradient == pytest.approx([-0.6, 0.45])


def test_dro_is_a_square_around_the_sampler():
    # -(-.8 * 2 - .025 * .04), -(-.9 * -1.5 - .025 * .04)
    logp = tensor([-0.8, -0.9], requires_grad=True)
    loss = dro(logp, tensor([-1.0, -0.7]), tensor([2.0, -1.5]), ones(2), beta=0.05, denominator=2)
    assert loss.item() == pytest.approx((1.601 - 1.349) / 2)


def test_gspo_takes_the_geometric_mean_and_clips_it():
    # mean log-ratios .0003 (clip above 1.0004: not yet), .01 (clipped), bad one at .01 not clipped
    logp = tensor([0.0001, 0.0005, 0.01, 0.01], dtype=torch.float64, requires_grad=True)
    options = {"denominator": 3, "lengths_S": tensor([2, 1, 1])}
    loss = gspo(logp, zeros(4).double(), tensor([1.0, 1.0, -1.0]), ones(3), **options)
    value, gradient = loss_and_gradient(loss, logp)
    assert value == pytest.approx((-math.exp(0.0003) - 1.0004 + math.exp(0.01)) / 3)
    assert gradient == pytest.approx([-math.exp(0.0003) / 6] * 2 + [0.0, math.exp(0.01) / 3])


def test_a_long_answer_that_barely_moved_multiplies_to_7_and_averages_to_1():
    logp, old, lengths = torch.full((1000,), 0.002), zeros(1000), tensor([1000])
    bad = tensor([-1.0])
    product = sequence_surrogate(logp, old, bad, ones(1), lengths, denominator=1)
    mean = gspo(logp, old, bad, ones(1), lengths, denominator=1)
    assert product.item() == pytest.approx(7.39, abs=0.005)
    assert mean.item() == pytest.approx(1.002, abs=1e-5)


def test_a_value_that_ran_past_the_range_learns_only_the_way_back():
    # V_old 0, clip .2, R 1: V .5 past it towards R: loss (.2 - 1)^2 / 2, no gradient; V -.5 away: (-.5 - 1)^2 / 2
    value = tensor([0.5, -0.5], requires_grad=True)
    loss = clipped_value_loss(value, zeros(2), ones(2), ones(2), denominator=2)
    assert loss_and_gradient(loss, value) == (pytest.approx((0.32 + 1.125) / 2), pytest.approx([0.0, -0.75]))


@pytest.mark.parametrize("function", [clipped_surrogate, dapo, cispo])
def test_a_rejected_token_leaves_the_sum_but_not_the_count(function):
    logp = tensor([-1.0, -1.0], requires_grad=True)
    loss = function(logp, tensor([-1.0, -math.inf]), tensor([2.0, 2.0]), ones(2), tensor([True, False]), denominator=2)
    _, gradient = loss_and_gradient(loss, logp)
    assert gradient == [-1.0, 0.0]


def test_the_count_decides_between_token_mean_sequence_mean_and_constant():
    # losses 1 1 1 | 4: token mean 7/4, mean of sequence means 2.5, constant length 5 of two samples .7
    advantage, keep = -tensor([1.0, 1.0, 1.0, 4.0]), ones(4).bool()

    def call(weight, count):
        return clipped_surrogate(zeros(4), zeros(4), advantage, weight, keep, denominator=count)

    assert call(ones(4), 4).item() == 1.75
    assert call(sequence_mean_weights(tensor([3, 1])), 2).item() == pytest.approx(2.5)
    assert call(ones(4), constant_denominator(2, max_length=5)).item() == pytest.approx(0.7)
