import pytest
from scipy.stats import norm, t

from evals.statistics.cuped import adjust
from evals.statistics.estimate import Estimate, Kind, around, scored, unknown
from evals.statistics.length_control import Weights, apply_weights
from evals.statistics.prediction_powered import prediction_powered_mean


def test_an_estimate_tells_how_much_of_what_was_asked_it_rests_on():
    found = around(0.75, 0.1118, n=10, num_asked=12)
    assert (found.coverage, found.num_clusters) == (pytest.approx(10 / 12), None)


def test_nothing_asked_has_no_coverage():
    assert unknown("no data").coverage is None


def test_the_kind_of_an_interval_says_how_it_was_made():
    kinds = [
        around(0.0, 1.0, n=9).interval,
        around(0.0, 1.0, n=9, freedom=8).interval,
        around(0.0, 1.0, n=9, num_clusters=3).interval,
        around(0.0, 1.0, n=9, freedom=2, num_clusters=3).interval,
    ]
    assert kinds == [Kind.NORMAL, Kind.T, Kind.CLUSTERED_NORMAL, Kind.CLUSTERED_T]


def test_bounds_are_the_quantiles_of_the_kind():
    assert around(1.0, 2.0, n=9, confidence=0.9).high == pytest.approx(1 + 2 * norm.ppf(0.95))
    assert around(1.0, 2.0, n=9, freedom=8).low == pytest.approx(1 - 2 * t.ppf(0.975, 8))


def test_an_error_of_nothing_gives_no_interval_without_width():
    found = around(0.5, 0.0, n=4)
    assert (found.low, found.high, found.interval) == (None, None, Kind.NONE)
    assert found.undefined == "what never varied says nothing about the error"


def test_what_is_not_known_must_say_why():
    with pytest.raises(AssertionError, match="say why"):
        Estimate(
            value=None, se=None, low=None, high=None, interval=Kind.NONE, confidence=0.95, n=0, num_asked=0,
            num_clusters=None,
        )  # fmt: skip


def test_nan_is_no_number():
    with pytest.raises(AssertionError):
        around(float("nan"), 1.0, n=3)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_row_2_values_that_are_no_numbers_are_refused_by_their_place(value):
    with pytest.raises(ValueError, match=r"value 1 is .*not known is None"):
        scored([1.0, value])


NAN = float("nan")


@pytest.mark.parametrize(
    ("compute", "what"),
    [
        (lambda: adjust([1.0, 2.0], [1.0, NAN]), "value before 1 is nan"),
        (lambda: prediction_powered_mean([1.0, NAN], [1.0, 1.0], [0.0, 1.0]), "label 1 is nan"),
        (lambda: apply_weights(Weights(model=0, length=0, difficulty=1), [NAN]), "difficulty 0 is nan"),
    ],
)
def test_row_2_no_column_lets_nan_through(compute, what):
    with pytest.raises(ValueError, match=what):
        compute()
