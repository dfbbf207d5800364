import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.inter_rater import cohens_kappa

from evals.statistics.agreement import cohen_kappa
from evals.statistics.estimate import Kind


def test_kappa_takes_chance_out_of_agreement():
    # 20 yes/yes, 5 yes/no, 10 no/yes, 15 no/no: agreement .7, by chance .5, kappa .4
    first = ["y"] * 25 + ["n"] * 25
    second = ["y"] * 20 + ["n"] * 5 + ["y"] * 10 + ["n"] * 15
    result = cohen_kappa(first, second)
    assert (result.agreement.share, result.kappa) == (pytest.approx(0.7), pytest.approx(0.4))


def test_kappa_and_its_error_equal_statsmodels():
    table = np.array([[20, 5, 1], [10, 15, 2], [3, 4, 9]])
    first, second = [], []
    for row in range(3):
        for column in range(3):
            first += [row] * int(table[row, column])
            second += [column] * int(table[row, column])
    oracle = cohens_kappa(table)
    result = cohen_kappa(first, second)
    assert result.kappa == pytest.approx(float(oracle.kappa))
    assert result.kappa_se == pytest.approx(float(oracle.std_kappa))
    assert result.kappa_low == pytest.approx(float(oracle.kappa_low))


def test_kappa_is_undefined_when_both_raters_always_say_the_same():
    result = cohen_kappa(["A", "A"], ["A", "A"])
    assert (result.agreement.share, result.kappa) == (1.0, None)


def test_a_constant_rater_agrees_only_by_chance():
    assert cohen_kappa(["A"] * 4, ["A", "A", "B", "B"]).kappa == 0.0


def test_no_items_is_no_agreement():
    result = cohen_kappa([], [])
    assert (result.n, result.agreement.share, result.kappa) == (0, None, None)


def test_kappa_equals_scikit_learn():
    rng = np.random.default_rng(7)
    first = rng.integers(0, 4, 120).tolist()
    second = [one if rng.random() < 0.6 else int(rng.integers(0, 4)) for one in first]
    assert cohen_kappa(first, second).kappa == pytest.approx(cohen_kappa_score(first, second))


def test_kappa_is_an_estimate_that_says_why_it_is_undefined():
    told = cohen_kappa(["y", "n", "y", "n"], ["y", "n", "n", "n"]).estimate()
    assert (told.value, told.interval, told.n) == (pytest.approx(0.5), Kind.NORMAL, 4)
    assert cohen_kappa(["A"], ["A"]).estimate().undefined == "both raters always said the same"
    assert cohen_kappa([], []).estimate().undefined == "no data"


def test_raters_of_different_items_are_refused():
    with pytest.raises(ValueError, match="1 ratings against 2"):
        cohen_kappa(["a"], ["a", "b"])
