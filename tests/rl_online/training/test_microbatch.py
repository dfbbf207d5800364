from rl_online.training.microbatch import micro_batches
from rl_online.training.samples import Stream, TrainingSample


def of_length(length):
    return TrainingSample(token_ids=[0] * length, positions=[1], weights={Stream.CE: 1.0}, reward=0.0)


def test_groups_are_cut_by_length_and_hold_no_more_than_asked_after_padding():
    samples = [of_length(length) for length in (3, 9, 5, 4, 8)]
    assert micro_batches(samples, 18) == [[1, 4], [2, 3, 0]]


def test_a_sample_longer_than_the_limit_goes_alone():
    assert micro_batches([of_length(5), of_length(50)], 10) == [[1], [0]]


def test_no_sample_makes_no_group():
    assert micro_batches([], 10) == []
