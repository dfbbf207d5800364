"""When to suggest at all: p* = .25 pays .75 for accepted, -.25 for rejected, 0 for silence.

A policy that may keep silent meets contexts whose users accept with a known probability; with our reward table, running
baseline and REINFORCE it ends speaking exactly where at least a quarter accept.
"""

import pytest
import torch

from rl_online.algorithms.policy_gradient import dppo_keep, reinforce
from rl_online.rewards.baseline import next_baselines
from rl_online.rewards.composite import DEFAULT_BODY, parse_reward_spec

# C contexts, K answers of one round
ACCEPTS_C = torch.tensor([0.02, 0.08, 0.14, 0.19, 0.31, 0.36, 0.5, 0.8])
REWARDS = parse_reward_spec(DEFAULT_BODY).outcomes
SPEAKS = 1
ROUNDS, ANSWERS, STEPS = 90, 256, 2


def answer(logits_CA, draw):
    """A round of answers under one frozen policy: context, choice, its log-probability, and the reward by outcome."""
    context_K = torch.randint(len(ACCEPTS_C), (ANSWERS,), generator=draw)
    logp_KA = logits_CA.detach().log_softmax(-1)[context_K]
    choice_K = torch.multinomial(logp_KA.exp(), 1, generator=draw).squeeze(1)
    accepts_K = torch.rand(ANSWERS, generator=draw) < ACCEPTS_C[context_K]
    shown_K = torch.where(accepts_K, REWARDS["accept"], REWARDS["reject"])
    reward_K = torch.where(choice_K == SPEAKS, shown_K, REWARDS["silence"])
    return context_K, choice_K, logp_KA.gather(1, choice_K.unsqueeze(1)).squeeze(1), reward_K


def train():
    """Probability of speaking in each context, before and after."""
    draw = torch.Generator().manual_seed(0)
    logits_CA = torch.tensor([[0.0, 1.0]]).repeat(len(ACCEPTS_C), 1).requires_grad_()  # speaks to 73% at first
    optimizer = torch.optim.Adam([logits_CA], lr=0.06)
    before_C = logits_CA.detach().softmax(-1)[:, SPEAKS]
    baselines = {}
    for _ in range(ROUNDS):
        context_K, choice_K, behaviour_K, reward_K = answer(logits_CA, draw)
        named = [
            (f"context {context}", reward)
            for context, reward in zip(context_K.tolist(), reward_K.tolist(), strict=True)
        ]
        batch = next_baselines(baselines, named)
        baselines = batch.state
        advantage_K = reward_K - torch.tensor(batch.per_sample)
        for _ in range(STEPS):  # the second step is off-policy already
            logp_K = logits_CA.log_softmax(-1)[context_K, choice_K]
            keep_K = dppo_keep(logp_K, behaviour_K, advantage_K)
            loss = reinforce(logp_K, behaviour_K, advantage_K, torch.ones(ANSWERS), keep_K, denominator=ANSWERS)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return before_C, logits_CA.detach().softmax(-1)[:, SPEAKS]


def test_speaking_pays_nothing_where_exactly_a_quarter_accept():
    assert 0.25 * REWARDS["accept"] + 0.75 * REWARDS["reject"] == 0.0
    assert REWARDS["silence"] == 0.0


def test_the_policy_ends_speaking_exactly_where_a_quarter_or_more_accept():
    before_C, after_C = train()
    assert (after_C > 0.9).tolist() == (ACCEPTS_C >= 0.25).tolist()
    assert (after_C < 0.1).tolist() == (ACCEPTS_C < 0.25).tolist()
    # fewer suggestions, and more of them accepted
    accepted_before, accepted_after = ((p * ACCEPTS_C).sum() / p.sum() for p in (before_C, after_C))
    assert after_C.sum() < 0.8 * before_C.sum()
    assert accepted_before.item() == pytest.approx(0.3)
    assert accepted_after.item() > 0.45
