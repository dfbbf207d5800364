import json

import pytest

from rl_online.rewards.baseline import RunningSlice, from_json, next_baselines, to_json


def test_a_sample_is_compared_with_the_others_of_its_slice_and_of_the_batch():
    # a: [1, 0], b: [1, 0]; for the first: slice others 0 over 1, batch others 1/3, shrink 4: (0 + 4/3) / 5
    result = next_baselines({}, [("a", 1), ("a", 0), ("b", 1), ("b", 0)])
    assert result.per_sample[0] == pytest.approx(4 / 3 / 5)
    assert result.per_sample[1] == pytest.approx((1 + 4 * 2 / 3) / 5)


def test_the_past_of_a_slice_decays_by_point_seven():
    # past 2 of 10, now one reward 1: total .7*2 + 1 = 2.4, count 8
    result = next_baselines({"a": RunningSlice(total=2, count=10)}, [("a", 1)])
    assert result.state["a"] == RunningSlice(total=pytest.approx(2.4), count=pytest.approx(8))
    assert result.per_sample == [pytest.approx(1.4 / 7)]


def test_slices_that_are_hard_have_a_lower_baseline_than_slices_that_are_easy():
    batch = [("hard", 0)] * 20 + [("hard", 1)] * 2 + [("easy", 1)] * 20 + [("easy", 0)] * 2
    baselines = next_baselines({}, batch).per_sample
    assert baselines[0] < 0.2 < 0.8 < baselines[22]


def test_equal_rewards_teach_nothing():
    result = next_baselines({}, [("a", 0.75)] * 3 + [("b", 0.75)])
    assert result.per_sample == [pytest.approx(0.75)] * 4


def test_a_lone_first_sample_has_baseline_0():
    assert next_baselines({}, [("a", 0.75)]).per_sample == [0.0]


def test_a_slice_absent_from_the_batch_keeps_a_fading_memory():
    result = next_baselines({"a": RunningSlice(total=1, count=2)}, [("b", 1), ("b", 0)])
    assert result.state["a"] == RunningSlice(total=pytest.approx(0.7), count=pytest.approx(1.4))


def test_the_same_batch_gives_the_same_bits():
    batch = [("a", 0.1 * index) for index in range(20)] + [("b", 0.3)] * 7
    assert next_baselines({}, batch) == next_baselines({}, batch)


def test_state_survives_storage():
    state = next_baselines({}, [("a", 0.1), ("b", 0.3)]).state
    assert from_json(json.loads(json.dumps(to_json(state)))) == state


def test_an_empty_batch_only_decays():
    result = next_baselines({"a": RunningSlice(total=1, count=1)}, [])
    assert (result.per_sample, result.state["a"].count) == ([], 0.7)
