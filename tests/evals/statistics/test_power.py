import numpy as np
import pytest
from statsmodels.stats.power import NormalIndPower

from evals.statistics.power import items_needed, items_needed_with_tries, minimal_detectable_effect, power_of


@pytest.mark.parametrize(("sd", "n", "points"), [(0.2927, 80, 9.17), (0.5, 500, 6.26)])
def test_the_minimal_detectable_effect_gives_the_reference_values(sd, n, points):
    assert 100 * minimal_detectable_effect(sd=sd, n=n) == pytest.approx(points, abs=0.005)


def test_millers_formula_gives_the_reference_number_of_items():
    assert items_needed_with_tries(0.03, between=1 / 9, within_new=1 / 6, within_old=1 / 6) == 3876


def test_more_tries_at_each_item_save_items():
    many = items_needed_with_tries(0.03, between=1 / 9, within_new=1 / 6, within_old=1 / 6, tries_new=10, tries_old=10)
    assert many == 1260  # 7.84888 * (1/9 + 1/30) / .0009 = 1259.7


def test_as_many_items_as_needed_are_enough_and_one_less_is_not():
    n = items_needed(0.04, sd=0.37)
    assert minimal_detectable_effect(sd=0.37, n=n) <= 0.04 < minimal_detectable_effect(sd=0.37, n=n - 1)


def test_power_equals_statsmodels():
    oracle = NormalIndPower(ddof=0)
    for effect in (0.0, 0.02, 0.05, 0.2):
        expected = oracle.power(effect / 0.4, nobs1=150, alpha=0.05, ratio=0)
        assert power_of(effect, sd=0.4, n=150) == pytest.approx(float(expected), abs=1e-6)


def test_power_is_what_simulation_finds():
    rng = np.random.default_rng(5)
    means = rng.normal(0.05, 0.4 / np.sqrt(300), 20_000)
    found = (np.abs(means) > 1.959964 * 0.4 / np.sqrt(300)).mean()
    assert power_of(0.05, sd=0.4, n=300) == pytest.approx(found, abs=0.012)


def test_where_nothing_can_vary_nothing_is_said():
    assert (minimal_detectable_effect(sd=0.0, n=5), power_of(0.1, sd=0.3, n=0)) == (None, None)


def test_an_effect_of_nothing_cannot_be_looked_for():
    with pytest.raises(ValueError, match="above 0"):
        items_needed(0.0, sd=1.0)
