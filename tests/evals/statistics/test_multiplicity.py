import json

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from evals.statistics.multiplicity import benjamini_hochberg, holm


def test_both_give_the_reference_values(samples):
    expected = json.loads(samples("EXPECTED.json").read_text())["unit_vectors"]["bh_holm"]
    assert holm(expected["p"]) == pytest.approx(expected["holm"], abs=1e-12)
    assert benjamini_hochberg(expected["p"]) == pytest.approx(expected["bh"], abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_both_equal_statsmodels(seed):
    rng = np.random.default_rng(seed)
    p_values = np.round(rng.random(1 + 4 * seed) ** 3, 2).tolist()  # with ties, and small ones
    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1].tolist())
    assert benjamini_hochberg(p_values) == pytest.approx(multipletests(p_values, method="fdr_bh")[1].tolist())


def test_a_test_that_could_not_be_made_is_no_test():
    assert holm([0.01, None, 0.04]) == [pytest.approx(0.02), None, pytest.approx(0.04)]
    assert benjamini_hochberg([None, 0.04]) == [None, 0.04]


def test_other_numbers_are_no_p_values():
    with pytest.raises(ValueError, match="p-value 1 is 1"):
        holm([0.1, 1.5])
