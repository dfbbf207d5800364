import json

import numpy as np
import pytest

from evals.statistics.cuped import adjust, difference_of_arms


def test_adjustment_gives_the_reference_values(samples):
    expected = json.loads(samples("EXPECTED.json").read_text())["unit_vectors"]["cuped"]
    found = adjust(expected["post"], expected["pre"])
    assert (found.theta, found.rho) == (pytest.approx(expected["theta"]), pytest.approx(expected["rho"]))
    assert found.variance_before == pytest.approx(expected["var_before"])
    assert found.variance_after == pytest.approx(expected["var_after"])


def test_the_mean_stays_and_the_variance_shrinks_by_one_minus_rho_squared():
    rng = np.random.default_rng(2)
    before = rng.normal(size=60)
    after = before + rng.normal(size=60)
    found = adjust(after, before)
    assert np.mean(found.values) == pytest.approx(after.mean())
    assert found.variance_after == pytest.approx(found.variance_before * (1 - found.rho**2))


def test_what_never_varied_before_takes_nothing_out():
    found = adjust([1.0, 2.0, 4.0], [3.0, 3.0, 3.0])
    assert (found.theta, found.rho, found.values) == (0.0, None, (1.0, 2.0, 4.0))


def test_nothing_and_one_have_no_variance():
    assert (adjust([], []).variance_before, adjust([1.0], [2.0]).variance_after) == (None, None)


def test_the_difference_of_arms_is_found_with_less_noise():
    rng = np.random.default_rng(4)
    before_new, before_old = rng.normal(size=500), rng.normal(size=500)
    new = before_new + 0.3 + 0.2 * rng.normal(size=500)
    old = before_old + 0.2 * rng.normal(size=500)
    found = difference_of_arms((new, before_new), (old, before_old))
    plain = np.sqrt(new.var(ddof=1) / 500 + old.var(ddof=1) / 500)
    assert found.low < 0.3 < found.high
    assert found.se < plain / 4  # 1 - rho^2 = .04 / 1.04, so 5.1 times


def test_an_arm_of_one_user_has_no_error():
    found = difference_of_arms(([1.0], [1.0]), ([1.0, 2.0], [1.0, 2.0]))
    assert (found.value, found.undefined) == (None, "an arm has fewer than two users")


def test_users_must_have_both_values():
    with pytest.raises(ValueError, match="2 values after, 1 before"):
        adjust([1, 2], [1])
