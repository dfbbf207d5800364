"""Credit within a group, over a batch and over the tokens of an answer."""

import pytest
import torch
from torch import tensor, zeros

from rl_online.algorithms.dapo import overlong_penalty
from rl_online.algorithms.dr_grpo import constant_denominator, dr_grpo_advantage
from rl_online.algorithms.gae import gae
from rl_online.algorithms.groups import is_alive, kl_weight
from rl_online.algorithms.grpo import grpo_advantage
from rl_online.algorithms.reinforce_plus_plus import reinforce_plus_plus, reinforce_plus_plus_baseline
from rl_online.algorithms.rloo import rloo_advantage

ONE_OF_FOUR = tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
SAME = torch.zeros(4, dtype=torch.int64)


@pytest.mark.parametrize(
    ("advantage", "right", "wrong"),
    [
        (grpo_advantage(ONE_OF_FOUR, SAME), 1.49970, -0.49990),
        (grpo_advantage(ONE_OF_FOUR, SAME, epsilon=1e-6), 1.4999970, -0.4999990),
        (dr_grpo_advantage(ONE_OF_FOUR, SAME), 0.75, -0.25),
        (rloo_advantage(ONE_OF_FOUR, SAME), 1.0, -1 / 3),
    ],
    ids=["grpo", "grpo as verl", "dr_grpo", "rloo"],
)
def test_one_right_answer_of_four(advantage, right, wrong):
    assert advantage.tolist() == pytest.approx([right, wrong, wrong, wrong], abs=5e-6)


def test_grpo_divides_by_n_minus_1():
    # with n instead: 1.73205 and -.57735
    assert grpo_advantage(ONE_OF_FOUR, SAME, epsilon=0.0)[0].item() == pytest.approx(1.5)


def test_groups_are_kept_apart_in_any_order():
    rewards, groups = tensor([1.0, 5.0, 0.0, 7.0]), tensor([0, 1, 0, 1])
    assert dr_grpo_advantage(rewards, groups).tolist() == [0.5, -1.0, -0.5, 1.0]
    assert rloo_advantage(rewards, groups).tolist() == [1.0, -2.0, -1.0, 2.0]


@pytest.mark.parametrize("advantage", [grpo_advantage, dr_grpo_advantage, rloo_advantage])
def test_a_lone_answer_and_a_group_of_equals_teach_nothing(advantage):
    rewards, groups = tensor([0.7, 0.1, 0.1, 0.1]), tensor([0, 1, 1, 1])
    assert advantage(rewards, groups).tolist() == [0.0] * 4
    assert advantage(zeros(0), zeros(0).long()).tolist() == []


def test_a_group_is_alive_by_its_own_rewards_not_the_batchs():
    # the batch varies; group 0 does not
    assert is_alive(tensor([0.1, 0.1, 0.0, 1.0]), tensor([0, 0, 1, 1])).tolist() == [False, False, True, True]


def test_dead_groups_pull_to_the_base_only_when_asked():
    alive = tensor([False, True])
    assert kl_weight(alive).tolist() == [0.0, 1.0]
    assert kl_weight(alive, kl_on_dead_groups=True).tolist() == [1.0, 1.0]


def test_dr_grpos_denominator_does_not_depend_on_what_was_said():
    assert constant_denominator(4, max_length=7) == 28.0


def test_reinforce_plus_plus_whitens_returns_over_all_tokens():
    # returns-to-go 1, 1 | -1: mean 1/3, variance (n - 1) 4/3
    advantage = reinforce_plus_plus(tensor([0.0, 1.0, -1.0]), tensor([2, 1]))
    assert advantage.tolist() == pytest.approx([(2 / 3) / (4 / 3) ** 0.5] * 2 + [(-4 / 3) / (4 / 3) ** 0.5])


def test_reinforce_plus_plus_with_baseline_centres_first():
    # centred .5, -.5 over lengths 1 and 3: tokens .5, -.5, -.5, -.5, mean -.25, variance .25
    advantage = reinforce_plus_plus_baseline(tensor([1.0, 0.0]), tensor([0, 0]), tensor([1, 3]))
    assert advantage.tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5])


def test_equal_rewards_whiten_to_zero():
    assert reinforce_plus_plus(tensor([0.0, 1.0, 1.0]), tensor([2, 1])).tolist() == [0.0] * 3


def test_gae_worked_by_hand():
    # d = (0 + .9 * .25 - .5, 1 - .25); lam .5: A_0 = -.275 + .45 * .75
    credit = gae(tensor([0.0, 1.0, 2.0]), tensor([0.5, 0.25, 3.0]), tensor([2, 1]), gamma=0.9, lam=0.5)
    assert credit.advantage_K.tolist() == pytest.approx([0.0625, 0.75, -1.0])
    assert credit.return_K.tolist() == pytest.approx([0.5625, 1.0, 2.0])


def test_without_discount_gae_is_the_return_less_the_value():
    credit = gae(tensor([0.0, 0.0, 1.0]), tensor([0.2, 0.4, 0.9]), tensor([3]))
    assert credit.return_K.tolist() == pytest.approx([1.0] * 3)
    assert credit.advantage_K.tolist() == pytest.approx([0.8, 0.6, 0.1])


def test_the_overlong_penalty_falls_over_the_buffer():
    lengths = tensor([3, 16, 18, 20, 25])
    assert overlong_penalty(lengths, max_length=20, buffer=4).tolist() == [0.0, 0.0, -0.5, -1.0, -1.0]
