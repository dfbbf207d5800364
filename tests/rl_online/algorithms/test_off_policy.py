"""Weights and masks for data the policy did not quite sample itself."""

import math

import pytest
import torch
from torch import ones, tensor, zeros

from rl_online.algorithms.off_policy import icepop_weight, tis_weight
from rl_online.algorithms.on_policy_distillation import one_sided_keep
from rl_online.algorithms.policy_gradient import reinforce
from rl_online.algorithms.ppo import clipped_surrogate
from rl_online.algorithms.reduction import to_tokens
from rl_online.algorithms.sequence_ratio import mean_ratio_keep, opsm_keep, sum_ratio_keep

MISMATCH = tensor([0.25, 1.5, 4.0, 8.0]).log()


def test_tis_truncates_where_icepop_drops():
    assert tis_weight(MISMATCH, zeros(4)).tolist() == pytest.approx([0.25, 1.5, 2.0, 2.0])
    assert icepop_weight(MISMATCH, zeros(4)).tolist() == pytest.approx([0.0, 1.5, 4.0, 0.0])


def test_a_weight_carries_no_gradient_and_no_infinity():
    old = zeros(1).requires_grad_()
    weight = tis_weight(old, tensor([-math.inf]))
    assert not weight.requires_grad and weight.item() == 2.0
    assert icepop_weight(old, tensor([-math.inf])).item() == 0.0


def test_a_mismatch_is_counted_once():
    # l = o, b = o - .5: in the ratio to b it is there already; a weight belongs to a ratio to o
    old, keep = tensor([-1.0]), ones(1).bool()
    behaviour = old - 0.5
    bypass = reinforce(old, behaviour, ones(1), ones(1), keep, denominator=1)
    weight = tis_weight(old, behaviour)
    decoupled = clipped_surrogate(old, old, ones(1), weight, keep, denominator=1)
    assert -bypass.item() == pytest.approx(math.exp(0.5))
    assert -decoupled.item() == pytest.approx(math.exp(0.5))


def test_decoupled_ppo_clips_around_the_trainers_own_policy():
    # b far off (weight capped at 2), l moved by 1.5 from o: clipped at 1.2
    loss = clipped_surrogate(
        tensor([1.5]).log(), zeros(1), ones(1), tis_weight(zeros(1), tensor([-3.0])), ones(1).bool(), denominator=1
    )
    assert loss.item() == pytest.approx(-2.4)


def test_a_cap_on_the_product_would_drop_a_long_answer_for_rounding_alone():
    # +.002 at each of 1,000 tokens: product 7.39 > 3, mean 1.002; one of 4 tokens off by e^4: product 54.6, mean 2.7
    drift = torch.cat([torch.full((1000,), 0.002), tensor([4.0, 0.0, 0.0, 0.0])])
    lengths = tensor([1000, 4])
    assert mean_ratio_keep(drift, zeros(1004), lengths).tolist() == [True, False]
    assert sum_ratio_keep(drift, zeros(1004), lengths).tolist() == [True, False]


def test_a_sums_allowance_grows_with_the_root_of_the_length():
    # .9 and 1.1 over 4 tokens (allowed 1); 9 and 11 over 400 (allowed 10)
    lengths = tensor([4, 4, 400, 400])
    drift = to_tokens(tensor([0.9, 1.1, 9.0, 11.0]) / lengths, lengths)
    assert sum_ratio_keep(drift, zeros(808), lengths).tolist() == [True, False, True, False]


def test_opsm_drops_a_bad_answer_the_policy_already_left():
    # mean b - l: .3 for the first three samples, 0 for the fourth
    behaviour, logp = zeros(7), tensor([-0.6, 0.0, -0.3, -0.6, 0.0, 0.0, 0.0])
    keep = opsm_keep(logp, behaviour, tensor([-1.0, 1.0, -1.0, -1.0]), tensor([2, 1, 2, 2]))
    assert keep.tolist() == [False, True, False, True]


def test_the_one_sided_mask_looks_at_falling_probabilities_alone():
    now, before = tensor([0.2, 0.4, 0.9]).log(), tensor([0.5, 0.5, 0.1]).log()
    assert one_sided_keep(now, before).tolist() == [False, True, True]
