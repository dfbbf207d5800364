import json

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn.calibration import calibration_curve
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss

from evals.statistics.calibration import calibration
from evals.statistics.recalibration import isotonic, platt


def made_up(n=400, seed=9):
    rng = np.random.default_rng(seed)
    predictions = rng.random(n)
    return predictions.tolist(), (rng.random(n) < predictions**2).tolist()


def test_ece_and_brier_give_the_reference_values(samples):
    expected = json.loads(samples("EXPECTED.json").read_text())["unit_vectors"]["ece_5bins"]
    found = calibration(expected["p"], expected["y"], num_bins=5)
    assert (found.ece, found.brier.value) == (pytest.approx(expected["ece"]), pytest.approx(expected["brier"]))


def test_bins_equal_scikit_learn():
    predictions, outcomes = made_up()
    happened, predicted = calibration_curve(outcomes, predictions, n_bins=10)
    found = calibration(predictions, outcomes)
    assert [one.happened.share for one in found.bins] == pytest.approx(happened.tolist())
    assert [one.predicted for one in found.bins] == pytest.approx(predicted.tolist())
    assert found.brier.value == pytest.approx(brier_score_loss(outcomes, predictions))


def test_an_empty_bin_has_no_mean_and_no_share():
    found = calibration([0.05, 1.0], [False, True], num_bins=2)
    assert [one.happened.n for one in found.bins] == [1, 1]
    middle = calibration([0.05, 1.0], [False, True], num_bins=3).bins[1]
    assert (middle.predicted, middle.happened.share) == (None, None)


def test_no_predictions_have_no_error():
    found = calibration([], [])
    assert (found.ece, found.brier.undefined) == (None, "no data")


@pytest.mark.parametrize("bad", [1.2, -0.1, float("nan")])
def test_what_is_no_probability_is_refused(bad):
    with pytest.raises(ValueError, match="prediction 1 is"):
        calibration([0.5, bad], [True, False])


def test_every_prediction_has_an_outcome():
    with pytest.raises(ValueError, match="1 predictions, 2 outcomes"):
        calibration([0.5], [True, False])


def test_isotonic_equals_scikit_learn():
    predictions, outcomes = made_up()
    oracle = IsotonicRegression(out_of_bounds="clip").fit(predictions, np.array(outcomes, dtype=float))
    curve = isotonic(predictions, outcomes)
    asked = [-0.5, 0.0, 0.123, 0.5, 0.77, 1.0, 3.0, *predictions[:50]]
    assert [curve(one) for one in asked] == pytest.approx(oracle.predict(asked).tolist(), abs=1e-9)


def test_equal_predictions_are_one_point_of_the_curve():
    curve = isotonic([0.5, 0.5, 0.9], [True, False, True])
    assert (curve(0.5), curve(0.7), curve(0.9)) == (0.5, pytest.approx(0.75), 1.0)


def test_platt_has_the_greatest_likelihood_on_its_targets():
    predictions, outcomes = made_up()
    right = sum(outcomes)
    targets = np.where(outcomes, (right + 1) / (right + 2), 1 / (len(outcomes) - right + 2))
    oracle = sm.GLM(targets, sm.add_constant(predictions), family=sm.families.Binomial()).fit()
    curve = platt(predictions, outcomes)
    assert [curve(one) for one in (0.1, 0.5, 0.9)] == pytest.approx(
        oracle.predict([[1, 0.1], [1, 0.5], [1, 0.9]]).tolist(), abs=1e-6
    )


def test_platt_stays_finite_where_scores_separate_the_outcomes():
    curve = platt([-3.0, -1.0, 2.0, 5.0], [False, False, True, True])
    assert 0 < curve(-3.0) < 0.5 < curve(5.0) < 1


@pytest.mark.parametrize(("scores", "outcomes"), [([0.1, 0.9], [True, True]), ([0.5, 0.5], [True, False])])
def test_platt_is_undefined_where_one_side_never_varies(scores, outcomes):
    assert platt(scores, outcomes) is None


def test_curves_need_data():
    assert isotonic([], []) is None
    with pytest.raises(ValueError, match="1 scores, 2 outcomes"):
        platt([0.5], [True, False])
