from dataclasses import replace

import pytest

from rl_online.rewards.batch import Batch, Sample
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.apply import select_credited
from rl_online.training.credit import assign_credit
from rl_online.training.errors import ContradictoryUpdate, UpdateFailed
from rl_online.training.samples import Stream, TrainingSample

GROUPS = {"policy_loss": "ppo_clip", "correction": "none"}


def answers(*rewards, group="g"):
    return [
        TrainingSample(token_ids=[2, 3, 4], positions=[1, 2], weights={Stream.RL: 1.0}, reward=reward, group=group)
        for reward in rewards
    ]


@pytest.mark.parametrize(
    "advantage, expected",
    [
        ("grpo", [1.49970, -0.49990, -0.49990, -0.49990]),
        ("dr_grpo", [0.75, -0.25, -0.25, -0.25]),
        ("rloo", [1.0, -1 / 3, -1 / 3, -1 / 3]),
        ("reinforce_plus_plus", [1.62019, -0.54006, -0.54006, -0.54006]),  # whitened over 8 tokens, with n - 1
    ],
)
def test_the_answers_of_a_group_are_compared_with_each_other(advantage, expected):
    credited = assign_credit(answers(1, 0, 0, 0), UpdateConfig(advantage=advantage, **GROUPS))
    assert [one.advantage for one in credited.samples] == pytest.approx(expected, abs=1e-5)


def test_a_group_of_equal_rewards_is_left_out_and_counted():
    credited = assign_credit(
        answers(1, 0, group="a") + answers(1, 1, group="b"), UpdateConfig(advantage="rloo", **GROUPS)
    )
    assert ([one.group for one in credited.samples], credited.num_dead) == (["a", "a"], 2)


OVERLONG = {"max_response_tokens": 20, "overlong_buffer": 4}


def long_answer(length, *, reward=0.75, advantage=0.5, group="g", **fields):
    return TrainingSample(
        token_ids=list(range(length + 1)), positions=list(range(1, length + 1)), weights={Stream.RL: 1.0},
        reward=reward, advantage=advantage, group=group, **fields,
    )  # fmt: skip


def test_an_answer_that_runs_into_the_limit_loses_reward_and_credit():
    # nothing up to 20 - 4 = 16 tokens, then a quarter for each, one at 20 and beyond
    samples = [long_answer(length) for length in (16, 18, 20, 23)]
    credited = assign_credit(samples, UpdateConfig(**OVERLONG)).samples
    assert [one.reward for one in credited] == [0.75, 0.25, -0.25, -0.25]
    assert [one.advantage for one in credited] == [0.5, 0.0, -0.5, -0.5]


def test_a_group_compares_rewards_that_know_the_length_limit():
    # equal rewards of 1 become 1 and 0, so the group is alive and the shorter answer is the better one
    samples = [long_answer(length, reward=1.0) for length in (10, 20)]
    credited = assign_credit(samples, UpdateConfig(advantage="dr_grpo", **OVERLONG, **GROUPS))
    assert ([one.advantage for one in credited.samples], credited.num_dead) == ([0.5, -0.5], 0)


def test_the_length_limit_lowers_each_tokens_own_credit_and_no_correction():
    each, corrected = long_answer(18, advantage=[1.0] * 18), long_answer(20, is_correction=True)
    found = assign_credit([each, corrected], UpdateConfig(**OVERLONG)).samples
    assert found == [replace(each, reward=0.25, advantage=[0.5] * 18), corrected]


def test_what_was_sealed_stays_as_it_is_by_default():
    samples = [replace(one, advantage=0.3) for one in answers(1, 0)]
    assert assign_credit(samples, UpdateConfig()).samples == samples


def stored(kind="rl", **changes) -> Sample:
    row = {"kind": kind, **changes.pop("row", {})}
    fields = {
        "token_ids": [5, 6, 7, 8], "prompt_length": 2, "mask": [0, 0, 1, 1],
        "behaviour_logprobs": [0.0, 0.0, -1.0, -1.0], "reward": 1.0, "baseline": 0.5, "versions": [-1, -1, 1, 1],
    }  # fmt: skip
    return Sample(**(fields | changes), row=row)


def select(*samples, **settings):
    return select_credited(Batch(digest="", samples=list(samples)), UpdateConfig(**settings), (0, 1))


@pytest.mark.parametrize(
    "samples, settings, message",
    [
        ([stored(row={"group": "a"}), stored()], {"advantage": "rloo", **GROUPS}, "1 samples have none"),
        ([stored("pref")], {"pref_loss": "dpo"}, "pref_loss dpo takes pairs"),
        ([stored()], {"pref_loss": "ipo"}, "pref_loss ipo takes pairs"),
        ([stored(row={"advantages": [0, 0, 1, -1]})], {"policy_loss": "gspo", "correction": "none"}, "each answer"),
    ],
)
def test_a_batch_that_the_config_does_not_fit_is_refused_with_the_reason(samples, settings, message):
    with pytest.raises(ContradictoryUpdate, match=message):
        select(*samples, **settings)


def test_a_group_that_lacks_an_answer_is_left_out_whole_and_counted():
    groups = [stored(row={"group": name}, reward=reward) for name in ("a", "b", "c") for reward in (1.0, 0.0)]
    off_lineage = stored(row={"group": "a"}, versions=[-1, -1, 9, 9])
    unknown = stored(row={"group": "b"}, versions=[-1, -1, -1, -1])
    selection = select(*groups, off_lineage, unknown, advantage="rloo", **GROUPS)
    assert [one.group for one in selection.samples] == ["c", "c"]
    assert selection.dropped == {"off_lineage": 1, "broken_group": 5}


def test_a_correction_is_in_no_group_and_keeps_the_credit_it_was_sealed_with():
    group = [stored(row={"group": "a"}, reward=reward) for reward in (1.0, 0.0)]
    correction = stored(row={"is_correction": True}, reward=-1.0, baseline=0.0)
    found = select(*group, correction, advantage="rloo", **GROUPS).samples
    assert [one.advantage for one in found] == [1.0, -1.0, -1.0]


def test_credit_for_each_token_comes_from_the_batch_where_it_has_it():
    (one,) = select(stored(row={"advantages": [0, 0, 1.0, -0.5], "token_weights": [1, 1, 1, 0.5]})).samples
    assert (one.advantage, one.weights) == ([1.0, -0.5], {Stream.RL: [1.0, 0.5]})


def test_a_pair_is_its_preferred_answer_and_the_other_and_its_other_kind_stays():
    better, worse = stored("ce", behaviour_logprobs=None), stored("pref", pair=0)
    found = select(better, worse, pref_loss="dpo").samples
    assert [(next(iter(one.weights)), one.index, one.is_chosen) for one in found] == [
        (Stream.CE, 0, True), (Stream.PREF, 0, True), (Stream.PREF, 1, False),
    ]  # fmt: skip
    assert {one.pair for one in found[1:]} == {1}


def test_a_pair_is_measured_only_where_either_of_its_answers_is():
    found = select(stored("pref", row={"is_heldout": True}), stored("pref", pair=0), stored(), pref_loss="dpo").samples
    assert [one.is_heldout for one in found] == [True, True, False]


def test_a_pair_goes_with_either_of_its_answers():
    kept = [stored("pref"), stored("pref", pair=0)]
    gone = [stored("pref", row={"tombstone": "0" * 64}), stored("pref", pair=2)]
    selection = select(*kept, *gone, pref_loss="dpo")
    assert [one.index for one in selection.samples] == [0, 1]
    assert selection.dropped == {"deleted": 1}


def test_nothing_to_learn_from_is_said_before_any_weights_are_loaded():
    with pytest.raises(UpdateFailed, match="dead_group"):
        select(stored(row={"group": "a"}), stored(row={"group": "a"}), advantage="dr_grpo", **GROUPS)
