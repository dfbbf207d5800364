import numpy as np
import pytest

from evals.statistics.estimate import Kind
from evals.statistics.prediction_powered import prediction_powered_mean, rogan_gladen

# 100 labels, 60 of them good: the judge agrees on 50 good and 30 bad ones; of 2,000 others it calls 1,300 good.
LABELS = [1.0] * 60 + [0.0] * 40
JUDGED = [1.0] * 50 + [0.0] * 10 + [1.0] * 10 + [0.0] * 30
OTHERS = [1.0] * 1300 + [0.0] * 700


def test_the_tuned_rate_gives_the_reference_values():
    found = prediction_powered_mean(LABELS, JUDGED, OTHERS)
    assert found.estimate.value == pytest.approx(0.6292, abs=5e-5)
    assert (found.estimate.low, found.estimate.high) == pytest.approx((0.5503, 0.7081), abs=5e-5)
    assert (found.estimate.interval, found.estimate.n, found.num_unlabelled) == (Kind.NORMAL, 100, 2000)


def test_full_trust_and_none_give_the_reference_values():
    assert prediction_powered_mean(LABELS, JUDGED, OTHERS, trust=1.0).estimate.value == pytest.approx(0.65)
    none = prediction_powered_mean(LABELS, JUDGED, OTHERS, trust=0.0)
    assert (none.estimate.low, none.estimate.high) == pytest.approx((0.504, 0.696), abs=5e-4)
    assert none.estimate.se == pytest.approx(none.labels_only.se)


def test_the_raw_rates_stand_beside_the_corrected_one():
    found = prediction_powered_mean(LABELS, JUDGED, OTHERS)
    assert (found.labels_only.value, found.judge_only) == (0.6, pytest.approx(1360 / 2100))
    assert found.trust == pytest.approx(0.584, abs=5e-4)
    assert found.estimate.se < found.labels_only.se


def test_a_judge_that_knows_nothing_gets_no_say():
    rng = np.random.default_rng(1)
    constant = prediction_powered_mean(LABELS, [1.0] * 100, [1.0] * 500)
    contrary = prediction_powered_mean(LABELS, [1 - one for one in LABELS], rng.integers(0, 2, 500).tolist())
    assert (constant.trust, contrary.trust) == (0.0, 0.0)
    assert constant.estimate.value == contrary.estimate.value == pytest.approx(0.6)


def test_the_interval_holds_as_often_as_it_says_however_biased_the_judge():
    # true rate .6; the judge says yes to 95 % of the good and 50 % of the bad
    rng, hits = np.random.default_rng(2), 0
    for _ in range(1_000):
        good = rng.random(1_100) < 0.6
        judged = np.where(good, rng.random(1_100) < 0.95, rng.random(1_100) < 0.5).astype(float)
        found = prediction_powered_mean(good[:100].astype(float), judged[:100], judged[100:]).estimate
        hits += found.low <= 0.6 <= found.high
    assert 0.92 <= hits / 1_000 <= 0.975


@pytest.mark.parametrize(("labels", "others"), [([1.0], [1.0, 0.0]), ([1.0, 0.0], [1.0])])
def test_two_items_of_each_kind_are_needed(labels, others):
    found = prediction_powered_mean(labels, labels, others)
    assert (found.estimate.value, found.trust) == (None, None)
    assert "two of each are needed" in found.estimate.undefined


def test_every_label_has_its_judgement():
    with pytest.raises(ValueError, match="1 labels, 2 judgements"):
        prediction_powered_mean([1.0], [1.0, 0.0], [1.0])


def test_a_judges_rate_is_turned_into_the_true_one_by_its_errors():
    # true rate 3/7: .9 * 3/7 + .2 * 4/7 = .5
    assert rogan_gladen(0.5, sensitivity=0.9, specificity=0.8) == pytest.approx(3 / 7)
    assert rogan_gladen(0.1, sensitivity=0.9, specificity=0.8) == 0.0
    assert rogan_gladen(0.5, sensitivity=0.5, specificity=0.5) is None
