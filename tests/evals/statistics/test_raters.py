import numpy as np
import pytest
from krippendorff import alpha
from statsmodels.stats.inter_rater import fleiss_kappa as statsmodels_fleiss

from evals.statistics.estimate import Kind
from evals.statistics.raters import Level, fleiss_kappa, krippendorff, krippendorff_alpha

# Fleiss' own table: 10 subjects, 14 raters, 5 categories
FLEISS = [
    [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
]  # fmt: skip
# Krippendorff's own table: 3 observers, 15 units
THREE = [
    [None, None, None, None, None, 3, 4, 1, 2, 1, 1, 3, 3, None, 3],
    [1, None, 2, 1, 3, 3, 4, 3, None, None, None, None, None, None, None],
    [None, None, 2, 1, 3, 4, 4, None, 2, 1, 1, 3, 3, None, 4],
]
UNITS = list(zip(*THREE, strict=True))


def test_fleiss_gives_the_classic_value_and_statsmodels():
    assert fleiss_kappa(FLEISS) == pytest.approx(0.20993, abs=1e-5)
    assert fleiss_kappa(FLEISS) == pytest.approx(float(statsmodels_fleiss(np.array(FLEISS))))


def test_fleiss_is_undefined_where_every_rating_is_the_same():
    assert fleiss_kappa([[3, 0], [3, 0]]) is None
    assert fleiss_kappa([]) is None


@pytest.mark.parametrize("counts", [[[2, 0], [1, 0]], [[1, 0], [0, 1]]])
def test_fleiss_wants_equally_many_ratings_of_each_item(counts):
    with pytest.raises(ValueError, match="use krippendorff_alpha"):
        fleiss_kappa(counts)


@pytest.mark.parametrize(("level", "expected"), [(Level.NOMINAL, 0.69136), (Level.INTERVAL, 0.81084)])
def test_krippendorff_gives_the_classic_values(level, expected):
    assert krippendorff_alpha(UNITS, level=level) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("level", list(Level))
def test_krippendorff_equals_the_package_with_missing_ratings(level):
    rng = np.random.default_rng(8)
    truth = rng.integers(1, 6, 40)
    ratings = [np.where(rng.random(40) < 0.6, truth, rng.integers(1, 6, 40)).astype(float) for _ in range(4)]
    for row in ratings:
        row[rng.random(40) < 0.3] = np.nan
    units = [[None if np.isnan(one) else int(one) for one in unit] for unit in zip(*ratings, strict=True)]
    expected = alpha(reliability_data=np.array(ratings), level_of_measurement=str(level))
    assert krippendorff_alpha(units, level=level) == pytest.approx(expected)


def test_krippendorff_takes_any_labels_at_the_nominal_level_only():
    words = [["yes", "yes"], ["no", "no"], ["yes", "no"]]
    assert krippendorff_alpha(words) == pytest.approx(4 / 9)  # 1 - (2/6) / (2*3*3/(6*5))
    with pytest.raises(ValueError, match="is no number"):
        krippendorff_alpha(words, level=Level.INTERVAL)


def test_alphas_interval_comes_from_resampled_items():
    found = krippendorff(UNITS, resamples=300, seed=1).estimate
    assert (found.n, found.num_asked, found.interval) == (12, 15, Kind.CLUSTERED_PERCENTILE)
    assert found.low < found.value < found.high <= 1.0


@pytest.mark.parametrize(
    ("ratings", "why"),
    [([["a", "a"], ["a", "a"]], "all ratings are the same"), ([["a", None]], "no item was rated twice")],
)
def test_alpha_is_undefined_where_chance_explains_all(ratings, why):
    found = krippendorff(ratings).estimate
    assert (found.value, found.undefined) == (None, why)
