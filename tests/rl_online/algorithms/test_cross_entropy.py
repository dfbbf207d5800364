import pytest
from torch import ones, tensor, zeros

from rl_online.algorithms.cross_entropy import cross_entropy


def test_the_loss_is_the_weighted_mean_of_negative_log_probabilities():
    # (1 * 1 + .5 * 4) / 2
    assert cross_entropy(tensor([-1.0, -4.0]), tensor([1.0, 0.5]), denominator=2).item() == pytest.approx(1.5)


def test_micro_batches_add_up_to_the_whole():
    logp = -tensor([1.0, 2.0, 3.0, 10.0])
    parts = [cross_entropy(logp[:3], ones(3), denominator=4), cross_entropy(logp[3:], ones(1), denominator=4)]
    assert sum(part.item() for part in parts) == 4.0


def test_no_token_gives_zero():
    assert cross_entropy(zeros(0), zeros(0), denominator=1).item() == 0.0
