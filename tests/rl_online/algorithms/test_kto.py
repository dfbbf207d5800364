import math

import pytest
import torch
from torch import ones, tensor

from rl_online.algorithms.kto import kto, mismatched, reference_point

PLAIN = {"beta": 0.5, "desirable": 1.0, "undesirable": 1.0}


def sigma(value):
    return 1 / (1 + math.exp(-value))


def test_the_loss_of_one_good_and_one_bad_answer_worked_by_hand():
    # R = 2 and -1, z = .5, beta .5: good 1 - sigma(.75), bad 1 - sigma(.75); mean of two
    loss = kto(tensor([2.0, -1.0]), tensor([True, False]), ones(2), reference_point=0.5, denominator=2, **PLAIN)
    assert loss.item() == pytest.approx(1 - sigma(0.75))


def test_each_class_has_its_own_weight():
    weights = PLAIN | {"desirable": 2.0, "undesirable": 3.0}
    loss = kto(tensor([0.0, 0.0]), tensor([True, False]), ones(2), reference_point=0.0, denominator=2, **weights)
    assert loss.item() == pytest.approx((2 * 0.5 + 3 * 0.5) / 2)


@pytest.mark.parametrize("is_good", [True, False])
def test_one_class_alone_gives_a_finite_mean_over_that_class(is_good):
    gains = tensor([0.0, 0.0, 0.0], requires_grad=True)
    loss = kto(gains, tensor([is_good] * 3), ones(3), reference_point=0.0, denominator=3, **PLAIN)
    loss.backward()
    assert loss.item() == pytest.approx(0.5)
    # d/dR of 1 - sigma(+-beta R) at 0 is -+beta / 4, over 3 samples
    assert gains.grad.tolist() == pytest.approx([-0.125 / 3 if is_good else 0.125 / 3] * 3)


def test_the_reference_point_is_the_mean_but_never_below_zero():
    assert reference_point([1.0, 2.0]) == 1.5
    assert reference_point([-3.0, 1.0]) == 0.0
    assert reference_point([]) == 0.0


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_nobody_is_paired_with_themselves_and_everybody_is_used(count):
    partners = mismatched(count)
    assert all(partner != index for index, partner in enumerate(partners))
    assert sorted(partners) == list(range(count))


def test_a_single_sample_has_no_mismatched_pair():
    assert mismatched(1) == [] and mismatched(0) == []


def test_no_sample_gives_zero():
    none = torch.zeros(0)
    assert kto(none, none.bool(), none, reference_point=0.0, denominator=1, **PLAIN).item() == 0.0
