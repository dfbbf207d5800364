"""When to suggest at all, learnt through the trainer: a suggestion pays .75 accepted, -.25 rejected, silence 0."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
import torch

from rl_online.rewards.composite import DEFAULT_BODY, parse_reward_spec
from tests.rl_online.training.small_products import Policy, Product, Turn, learn_rounds

ACCEPTS = {"at_2": 0.02, "at_8": 0.08, "at_15": 0.15, "at_36": 0.36, "at_50": 0.5, "at_80": 0.8}  # in this situation
SHOWS, THRESHOLD = "show", 0.25
ROUNDS, ENDS = 24, 4  # the first and last rounds that are compared


def react(situation: str, answer: str, rng: Random):
    if answer != SHOWS:
        return "silence", {}
    return ("accept" if rng.random() < ACCEPTS[situation] else "reject"), {}


TAB = Product(situations=tuple(ACCEPTS), answers=(SHOWS, "quiet"), start=0.75, is_sliced=True, react=react)


def learn(root: Path, *, seed: int):
    """Shares of what is said in each situation before and after, and the turns of each round."""
    policy = Policy(TAB, root, seed=seed)
    before = policy.shares()
    seen = learn_rounds(policy, parse_reward_spec(DEFAULT_BODY), rounds=ROUNDS)
    return before, policy.shares(), seen


def numbers(seen: Sequence[Sequence[Turn]]) -> dict[str, float]:
    """Of the first and of the last rounds: how often something is shown, and how much of that is accepted."""
    found = {}
    for name, rounds in (("first", seen[:ENDS]), ("last", seen[-ENDS:])):
        turns = [turn for one in rounds for turn in one]
        shown = [turn for turn in turns if turn.answer == SHOWS]
        found[f"shown_{name}"] = len(shown) / len(turns)
        found[f"accepted_{name}"] = sum(turn.outcome == "accept" for turn in shown) / len(shown)
    return found


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    torch.set_num_threads(1)
    return learn(tmp_path_factory.mktemp("tab"), seed=0)


def test_a_policy_that_may_keep_silent_ends_speaking_where_a_quarter_or_more_accept(learnt):
    before, after, _ = learnt
    assert all(0.6 < shares[SHOWS] < 0.9 for shares in before.values())
    likely = {name for name, accepts in ACCEPTS.items() if accepts >= THRESHOLD}
    assert {name for name, shares in after.items() if shares[SHOWS] > 0.75} == likely
    assert {name for name, shares in after.items() if shares[SHOWS] < 0.25} == ACCEPTS.keys() - likely


def test_it_suggests_less_and_more_of_it_is_accepted(learnt):
    found = numbers(learnt[2])
    assert found["shown_last"] < 0.8 * found["shown_first"]
    assert found["accepted_last"] > found["accepted_first"] + 0.15
