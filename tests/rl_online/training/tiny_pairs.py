"""Preference pairs with a taste planted in them, for reward models and what is trained against them."""

import random

from rl_online.rewards.batch import Sample
from rl_online.rewards.update_config import UpdateConfig

GOOD = 7  # the token that people like
PAIR_CONFIG = UpdateConfig(
    learning_rate=3e-3, minibatch_size=16, epochs=4, micro_batch_tokens=2048, snapshot_s=0.0, min_pairs=8
)


def make_side(rng, prompt, answer, person, **changes):
    ids = [*prompt, *answer]
    fields = {
        "token_ids": ids,
        "prompt_length": len(prompt),
        "mask": [0] * len(prompt) + [1] * len(answer),
        "behaviour_logprobs": None,
        "reward": 0.0,
        "baseline": 0.0,
        "versions": [-1] * len(ids),
        "row": {"turn": str(rng.random()), "kind": "pref", "user_hash": person},
    }
    return Sample(**(fields | changes))


def plain_answer(rng, length):
    return [rng.choice([token for token in range(2, 32) if token != GOOD]) for _ in range(length)]


def make_pairs(count=96, *, seed=0, people=24):
    """`count` pairs: the better answer says GOOD somewhere, the other nowhere; either may be the longer."""
    rng = random.Random(seed)
    samples = []
    for number in range(count):
        prompt, person = plain_answer(rng, rng.randrange(2, 5)), f"person-{number % people}"
        better, worse = plain_answer(rng, rng.randrange(1, 5)), plain_answer(rng, rng.randrange(2, 6))
        better.insert(rng.randrange(len(better) + 1), GOOD)
        samples.append(make_side(rng, prompt, [*better, 0], person))
        samples.append(make_side(rng, prompt, [*worse, 0], person, pair=len(samples) - 1))
    return samples
