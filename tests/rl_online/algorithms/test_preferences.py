"""Pairs: DPO and its relatives, and the reward model."""

import math

import pytest
from torch import ones, tensor

from rl_online.algorithms.dpo import dpo, robust_dpo
from rl_online.algorithms.ipo import ipo
from rl_online.algorithms.kto import apo_zero_unpaired, kto
from rl_online.algorithms.reward_model import bradley_terry

PREFERRED, REJECTED = tensor([2.0, -1.0]), tensor([-1.0, 1.0])  # gains: margins 3 and -2
OVER_BOTH = {"denominator": 2}


def softplus(value):
    """-log sigma(-value)"""
    return math.log1p(math.exp(value))


def test_dpo_worked_by_hand():
    loss = dpo(PREFERRED, REJECTED, ones(2), beta=0.5, **OVER_BOTH)
    assert loss.item() == pytest.approx((softplus(-1.5) + softplus(1.0)) / 2)


def test_no_margin_costs_the_logarithm_of_two_and_pulls_apart_by_half_beta():
    gain = tensor([0.0], requires_grad=True)
    loss = dpo(gain, tensor([0.0]), ones(1), denominator=1)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2))
    assert gain.grad.item() == pytest.approx(-0.05)


def test_cdpo_mixes_in_the_flipped_pair_and_robust_dpo_takes_it_out():
    plain, flipped = softplus(-1.5), softplus(1.5)
    options = {"beta": 0.5, "label_smoothing": 0.1, "denominator": 1}
    smoothed = dpo(tensor([3.0]), tensor([0.0]), ones(1), **options)
    robust = robust_dpo(tensor([3.0]), tensor([0.0]), ones(1), **options)
    assert smoothed.item() == pytest.approx(0.9 * plain + 0.1 * flipped)
    assert robust.item() == pytest.approx((0.9 * plain - 0.1 * flipped) / 0.8)


def test_robust_dpo_is_unbiased_under_flipped_labels():
    # a tenth of the labels flipped: its mean is the plain loss of the true labels
    options = {"beta": 0.5, "denominator": 1}
    right = robust_dpo(tensor([3.0]), tensor([0.0]), ones(1), label_smoothing=0.1, **options)
    wrong = robust_dpo(tensor([0.0]), tensor([3.0]), ones(1), label_smoothing=0.1, **options)
    assert 0.9 * right.item() + 0.1 * wrong.item() == pytest.approx(softplus(-1.5))


def test_robust_dpo_refuses_labels_that_say_nothing():
    with pytest.raises(ValueError, match=r"less than \.5"):
        robust_dpo(PREFERRED, REJECTED, ones(2), label_smoothing=0.5, **OVER_BOTH)


def test_ipo_stops_pulling_at_its_target_distance():
    # gains per token 4/2 and -3/1: distance 5 = 1 / (2 * .1)
    gain = tensor([4.0], requires_grad=True)
    loss = ipo(gain, tensor([-3.0]), tensor([2]), tensor([1]), ones(1), denominator=1)
    loss.backward()
    assert (loss.item(), gain.grad.item()) == (0.0, 0.0)


def test_the_reward_model_wants_a_margin_and_scores_around_zero():
    plain = bradley_terry(tensor([2.0]), tensor([1.0]), ones(1), denominator=1)
    asked = bradley_terry(tensor([2.0]), tensor([1.0]), ones(1), denominator=1, margin_P=tensor([3.0]))
    centred = bradley_terry(tensor([2.0]), tensor([1.0]), ones(1), denominator=1, centering=0.01)
    assert plain.item() == pytest.approx(softplus(-1.0))
    assert asked.item() == pytest.approx(softplus(2.0))
    assert centred.item() == pytest.approx(softplus(-1.0) + 0.09)


def test_apo_zero_is_kto_without_a_reference_point():
    gains, good = tensor([2.0, -1.0]), tensor([True, False])
    loss = apo_zero_unpaired(gains, good, ones(2), beta=0.5, denominator=2)
    # 1 - sigma(1) and sigma(-.5)
    assert loss.item() == pytest.approx((1 / (1 + math.e) + 1 / (1 + math.exp(0.5))) / 2)
    assert loss.item() != kto(gains, good, ones(2), reference_point=0.5, beta=0.5, denominator=2).item()
