from dataclasses import replace
from itertools import chain

import pytest

from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.apply import lr_scale, mismatch, plan_samples, plan_steps, split_heldout, with_references
from rl_online.training.samples import Stream, TrainingSample


def kto(prompt, completion):
    return TrainingSample(
        token_ids=prompt + completion,
        positions=list(range(len(prompt), len(prompt) + len(completion))),
        weights={Stream.PREF: 1.0},
        reward=1.0,
        advantage=1.0,
    )


def test_every_sample_is_used_once_an_epoch_in_steps_of_nearly_equal_size():
    plan = plan_steps(390, UpdateConfig(epochs=2), seed=0)
    assert [len(step) for step in plan] == [65] * 12
    assert sorted(chain(*plan[:6])) == sorted(chain(*plan[6:])) == list(range(390))
    assert plan[:6] != plan[6:]


def test_few_samples_make_one_step():
    assert [sorted(step) for step in plan_steps(3, UpdateConfig(), seed=0)] == [[0, 1, 2]]


def test_the_seed_decides_the_order():
    assert plan_steps(64, UpdateConfig(), seed=1) == plan_steps(64, UpdateConfig(), seed=1)
    assert plan_steps(64, UpdateConfig(), seed=1) != plan_steps(64, UpdateConfig(), seed=2)


def test_the_learning_rate_warms_up_and_falls_along_a_cosine():
    config = UpdateConfig(warmup_steps=2, schedule="cosine")
    assert [lr_scale(step, 6, config) for step in range(1, 7)] == pytest.approx(
        [0.5, 1, 1, 0.8536, 0.5, 0.1464], abs=1e-4
    )


def test_by_default_it_is_exactly_what_it_says():
    assert [lr_scale(step, 6, UpdateConfig()) for step in range(1, 7)] == [1.0] * 6


def test_the_answers_of_a_pair_are_in_the_same_step():
    samples = [replace(kto([n], [3]), pair=n // 2, is_chosen=n % 2 == 0) for n in range(12)]
    plan = plan_samples(samples, UpdateConfig(minibatch_size=2), seed=0)
    assert sorted(chain(*plan)) == list(range(12)) and len(plan) == 3
    assert all({one ^ 1 for one in step} == set(step) for step in plan)


def test_a_mismatched_pair_is_ones_prompt_with_anothers_completion():
    pair = mismatch(kto([1, 2, 3], [4]), kto([5], [6, 7]))
    assert (pair.token_ids, pair.positions) == ([1, 2, 3, 6, 7], [3, 4])


def test_references_reach_the_samples_and_pairs_they_belong_to():
    samples = [kto([1, 2], [3]), kto([4, 5, 6], [7, 8])]

    def score(scored):
        return [[float(sum(one.token_ids))] for one in scored]

    filled, partners = with_references(samples, UpdateConfig(), score)
    assert [one.reference for one in filled] == [6.0, 30.0]
    assert [pair.token_ids for pair in partners] == [[1, 2, 7, 8], [4, 5, 6, 3]]
    assert [pair.reference for pair in partners] == [18.0, 18.0]


def test_the_base_is_asked_only_for_what_needs_it():
    rl = replace(kto([1, 2], [3]), weights={Stream.RL: 1.0}, behaviour=[-1.0])
    near = replace(rl, weights={Stream.RL: 1.0, Stream.REF_KL: 1.0})
    asked = []

    def score(scored):
        asked.extend(scored)
        return [[-0.5] for _ in scored]

    assert with_references([rl], UpdateConfig(), score) == ([rl], [None])
    assert asked == []
    (filled,), _ = with_references([near], UpdateConfig(base_kl=0.1), score)
    assert filled.base == [-0.5]


def test_a_lone_kto_sample_has_no_pair():
    _, partners = with_references([kto([1, 2], [3])], UpdateConfig(), lambda scored: [[0.0] for _ in scored])
    assert partners == [None]


def test_what_the_batch_marks_is_set_aside_and_the_rest_trained_on_in_order():
    samples = [replace(kto([n, 2], [3]), is_heldout=n in (1, 3)) for n in range(5)]
    trained, heldout = split_heldout(samples)
    assert [one.token_ids[0] for one in trained] == [0, 2, 4]
    assert [one.token_ids[0] for one in heldout] == [1, 3]
