import pytest
import torch
from torch import tensor, zeros

from rl_online.algorithms.merge_error import measure_merge


def test_of_a_typical_update_merged_into_bfloat16_half_is_lost():
    # weights with sigma .02, an update of 5.7e-5: about half of the entries move, and half of the update arrives
    draw = torch.Generator().manual_seed(0)
    base = (torch.randn(100_000, generator=draw) * 0.02).bfloat16()
    before = base.clone()
    error = measure_merge(base, torch.randn(100_000, generator=draw) * 5.7e-5)
    assert error.moved_share == pytest.approx(0.49, abs=0.03)
    assert error.relative_error == pytest.approx(0.49, abs=0.03)
    assert torch.equal(base, before)


def test_a_change_below_half_a_step_vanishes_and_one_above_becomes_a_whole():
    # bfloat16 steps at 1 are 2^-7
    error = measure_merge(tensor([1.0, 1.0]).bfloat16(), tensor([0.003, 0.006]))
    assert error.moved_share == 0.5
    assert error.relative_error == pytest.approx(
        (0.003**2 + (2**-7 - 0.006) ** 2) ** 0.5 / (0.003**2 + 0.006**2) ** 0.5
    )


def test_float32_takes_what_it_is_given_and_nothing_wanted_is_no_error():
    assert measure_merge(zeros(2), tensor([0.1, 0.2])).relative_error == 0.0
    assert measure_merge(tensor([1.0]).bfloat16(), zeros(1)).relative_error == 0.0
