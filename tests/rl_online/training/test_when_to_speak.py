"""When to suggest at all, learnt through the trainer: a suggestion pays .75 accepted, -.25 rejected, silence 0."""

from random import Random

import pytest
import torch

from rl_online.rewards.composite import DEFAULT_BODY, parse_reward_spec
from tests.rl_online.training.small_products import Policy, Product, learn_rounds

ACCEPTS = {"at_2": 0.02, "at_8": 0.08, "at_15": 0.15, "at_36": 0.36, "at_50": 0.5, "at_80": 0.8}  # in this situation
SHOWS, THRESHOLD = "show", 0.25


def react(situation: str, answer: str, rng: Random):
    if answer != SHOWS:
        return "silence", {}
    return ("accept" if rng.random() < ACCEPTS[situation] else "reject"), {}


TAB = Product(situations=tuple(ACCEPTS), answers=(SHOWS, "quiet"), start=0.75, is_sliced=True, react=react)


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    torch.set_num_threads(1)
    policy = Policy(TAB, tmp_path_factory.mktemp("tab"), seed=0)
    before = policy.shares()
    seen = learn_rounds(policy, parse_reward_spec(DEFAULT_BODY), rounds=24)
    return before, policy.shares(), seen


def test_a_policy_that_may_keep_silent_ends_speaking_where_a_quarter_or_more_accept(learnt):
    before, after, _ = learnt
    assert all(0.6 < shares[SHOWS] < 0.9 for shares in before.values())
    assert {name for name, shares in after.items() if shares[SHOWS] > 0.8} == {"at_36", "at_50", "at_80"}
    assert {name for name, shares in after.items() if shares[SHOWS] < 0.2} == {"at_2", "at_8", "at_15"}


def test_it_suggests_less_and_more_of_it_is_accepted(learnt):
    _, _, seen = learnt
    first, last = (sum(rounds, []) for rounds in (seen[:4], seen[-4:]))
    shown = [[turn for turn in turns if turn.answer == SHOWS] for turns in (first, last)]
    accepted = [sum(turn.outcome == "accept" for turn in turns) / len(turns) for turns in shown]
    assert len(shown[1]) < 0.8 * len(shown[0])
    assert accepted[1] > accepted[0] + 0.15
