import pytest

from evals.judging.gold import gold_record


def test_agreement_is_on_good_or_not_and_the_corrected_rate_stands_beside_the_raw_one():
    labels, judged = [1.0, 0.0] * 20, [0.9, 0.6] * 20  # says good about everything
    found = gold_record(labels, judged, [0.9, 0.6] * 200)
    assert (found.agreement.agreement.successes, found.n) == (20, 40)
    assert found.corrected.judge_only == pytest.approx(0.75)
    assert found.corrected.estimate.value == pytest.approx(0.5) and found.corrected.num_unlabelled == 400


def test_marks_that_mean_what_they_say_are_calibrated():
    found = gold_record([1.0] * 8 + [0.0] * 2, [0.8] * 10, [])
    assert found.calibration.ece == pytest.approx(0)


def test_without_labels_nothing_is_known():
    found = gold_record([], [], [0.5] * 10)
    assert (found.n, found.agreement.kappa, found.calibration.ece, found.corrected.estimate.value) == (
        0,
        None,
        None,
        None,
    )
