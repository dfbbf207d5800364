import math

import pytest
import torch
from torch import tensor

from rl_online.algorithms.diagnostics import measure_drift


def test_on_policy_nothing_has_moved():
    logp = tensor([-1.0, -2.0])
    drift = measure_drift(logp, logp, torch.ones(2).bool())
    assert (drift.kl, drift.ratio_mean, drift.ratio_max, drift.ess_share, drift.logp_gap) == (0, 1, 1, 1, 0)


def test_drift_of_two_tokens_worked_by_hand():
    # ratios 3 and 1: ESS = 16 / (2 * 10); kl = (3 - 1 - ln 3 + 0) / 2
    drift = measure_drift(tensor([3.0, 1.0]).log(), torch.zeros(2), tensor([False, True]))
    assert drift.ratio_mean == pytest.approx(2.0)
    assert drift.ratio_max == pytest.approx(3.0)
    assert drift.ess_share == pytest.approx(0.8)
    assert drift.kl == pytest.approx((2 - math.log(3)) / 2)
    assert drift.logp_gap == pytest.approx(math.log(3) / 2)
    assert drift.clipped_share == 0.5


def test_without_tokens_there_is_no_drift_to_state():
    none = torch.zeros(0)
    assert measure_drift(none, none, none.bool()) is None
