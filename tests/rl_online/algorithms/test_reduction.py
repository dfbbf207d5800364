import math

from torch import ones, tensor, zeros

from rl_online.algorithms.reduction import (
    kept,
    log_ratio,
    sample_means,
    sample_sums,
    sequence_mean_weights,
    to_tokens,
    weighted_mean,
)

LENGTHS = tensor([2, 0, 1])


def test_a_count_of_nothing_gives_zero_and_not_nan():
    assert weighted_mean(zeros(0), zeros(0), denominator=0).item() == 0.0


def test_values_of_a_sample_reach_its_tokens_and_come_back_as_sums_and_means():
    assert to_tokens(tensor([0.5, 9.0, -1.0]), LENGTHS).tolist() == [0.5, 0.5, -1.0]
    assert sample_sums(tensor([1.0, 3.0, 5.0]), LENGTHS).tolist() == [4.0, 0.0, 5.0]
    assert sample_means(tensor([1.0, 3.0, 5.0]), LENGTHS).tolist() == [2.0, 0.0, 5.0]


def test_a_mean_of_sequence_means_is_a_weighted_sum_over_samples():
    # means 2 and 5 of two samples
    weights = sequence_mean_weights(tensor([2, 1]))
    assert weighted_mean(tensor([1.0, 3.0, 5.0]), weights, denominator=2).item() == 3.5


def test_a_dropped_infinity_leaves_no_trace_in_value_or_gradient():
    logp = tensor([-1.0, -1.0], requires_grad=True)
    keep = tensor([True, False])
    loss = kept(log_ratio(logp, tensor([-1.0, -math.inf]), keep).exp(), keep).sum()
    loss.backward()
    assert loss.item() == 1.0
    assert logp.grad.tolist() == [1.0, 0.0]


def test_a_kept_ratio_beyond_the_limit_is_finite_without_gradient():
    logp = zeros(1).requires_grad_()
    ratio = log_ratio(logp, tensor([-math.inf]), ones(1).bool()).exp()
    ratio.sum().backward()
    assert math.isfinite(ratio.item()) and logp.grad.item() == 0.0
