from dataclasses import replace

import pytest

from rl_online.rewards.batch import Batch, Sample
from rl_online.rewards.update_config import UpdateConfig
from rl_online.training.samples import Stream, lag, select_samples

GOOD = Sample(
    token_ids=[5, 6, 7, 8],
    prompt_length=2,
    mask=[0, 0, 1, 1],
    behaviour_logprobs=[0.0, 0.0, -0.1, -0.7],
    reward=0.75,
    baseline=0.25,
    versions=[-1, -1, 3, 3],
    row={"kind": "rl"},
)


def select(*samples, config=None, lineage=(1, 2, 3)):
    return select_samples(Batch(digest="", samples=list(samples)), config or UpdateConfig(), lineage)


def stream_of(sample, **options):
    selection = select(sample, **options)
    return next(iter(selection.samples[0].weights)) if selection.samples else next(iter(selection.dropped))


def test_a_complete_sample_enters_the_ratio_loss_with_its_advantage_and_its_logprobs():
    (one,) = select(GOOD).samples
    assert (list(one.weights), one.positions, one.advantage, one.behaviour) == ([Stream.RL], [2, 3], 0.5, [-0.1, -0.7])


def test_the_sampling_temperature_goes_with_the_sample():
    (one,) = select(replace(GOOD, row={"kind": "rl", "sampling": {"temperature": 0.6, "top_p": 1, "top_k": 0}})).samples
    assert one.temperature == 0.6


@pytest.mark.parametrize(
    "sampling",
    [{"temperature": 0}, {"top_p": 0.9}, {"top_k": 40}, {"frequency_penalty": 0.5}, {"presence_penalty": -1}],
)
def test_a_filtered_or_greedy_sample_never_enters_a_ratio_loss(sampling):
    assert stream_of(replace(GOOD, row={"kind": "rl", "sampling": sampling})) == Stream.PREF


def test_a_sample_without_logprobs_never_enters_a_ratio_loss():
    assert stream_of(replace(GOOD, behaviour_logprobs=None)) == Stream.PREF


def test_a_sample_of_unknown_version_never_enters_a_ratio_loss():
    assert stream_of(replace(GOOD, versions=[-1] * 4)) == Stream.PREF


def test_a_kto_row_goes_to_kto_even_with_logprobs():
    assert stream_of(replace(GOOD, row={"kind": "kto"})) == Stream.PREF


def test_kto_needs_a_verdict_above_or_below_the_baseline():
    assert stream_of(replace(GOOD, row={"kind": "kto"}, reward=0.25)) == "no_verdict"
    assert stream_of(replace(GOOD, row={"kind": "kto"}, reward=0.0)) == Stream.PREF


def test_demonstrations_go_to_cross_entropy():
    assert stream_of(replace(GOOD, row={"kind": "ce"}, behaviour_logprobs=None)) == Stream.CE


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"mask": [0, 0, 0, 0]}, "nothing_trained"),
        ({"weight": 0.0}, "zero_weight"),
        ({"row": {"tombstone": "0" * 64}}, "deleted"),
        ({"versions": [-1, -1, 9, 9]}, "off_lineage"),
        ({"versions": [-1, -1, 1, 3]}, "too_stale"),
    ],
)
def test_what_must_not_be_trained_on_is_dropped_with_the_reason(changes, reason):
    assert stream_of(replace(GOOD, **changes), config=UpdateConfig(max_lag=1)) == reason


def test_a_switched_off_stream_drops_its_samples():
    off = UpdateConfig(kto_weight=0, ce_weight=0)
    assert stream_of(replace(GOOD, row={"kind": "ce"}), config=off) == "ce_off"
    assert stream_of(replace(GOOD, row={"kind": "kto"}), config=off) == "kto_off"


def test_lag_counts_updates_on_the_lineage_not_version_numbers():
    assert lag([2], [1, 2, 5]) == 1
    assert lag([5, 2, 5], [1, 2, 5]) == 1
    assert lag([5], [1, 2, 5]) == 0


def test_a_version_off_the_lineage_has_no_lag():
    assert lag([3], [1, 2, 5]) is None
    assert lag([], [1]) is None
