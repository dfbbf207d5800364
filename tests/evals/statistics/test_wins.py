import json
from dataclasses import asdict

import numpy as np
import pytest

from evals.statistics.estimate import Kind
from evals.statistics.wins import win_rate, win_rates


def test_ties_are_half_a_win_and_shrink_the_error():
    rate = win_rate([1] * 6 + [0.5] * 3 + [0])
    assert (rate.rate, rate.se) == (0.75, pytest.approx(0.1118, abs=1e-4))
    assert (rate.wins, rate.ties, rate.losses) == (6, 3, 1)


def test_row_23_judgements_that_cannot_be_read_stay_outside_the_rate_and_are_no_ties():
    rate = win_rate([1, None, None, 0])
    assert (rate.rate, rate.undecided) == (0.5, 2)


def test_nothing_decided_is_no_rate():
    rate = win_rate([None])
    assert (rate.rate, rate.se, rate.low) == (None, None, None)


def test_the_interval_follows_the_clusters_when_there_are_some():
    # two items with two results each: clustered se .5 (see test_means), so n is 4 / (.25 / .0625) = 1
    rate = win_rate([1, 1, 0, 0], clusters=["a", "a", "b", "b"])
    assert (rate.se, rate.clustered_se) == (pytest.approx(0.28868, abs=1e-5), pytest.approx(0.5))
    assert (rate.low, rate.high) == (pytest.approx(0.05462, abs=1e-5), pytest.approx(0.94538, abs=1e-5))
    assert rate.interval == "wilson_clustered"


def test_a_few_wins_in_a_row_are_no_certainty():
    # Wilson for 3 of 3; the normal interval would be [1, 1]
    rate = win_rate([1, 1, 1])
    assert (rate.low, rate.high, rate.n) == (pytest.approx(0.43850, abs=1e-5), 1.0, 3)


def test_ten_ties_do_not_prove_equality():
    rate = win_rate([0.5] * 10)
    assert rate.low == pytest.approx(0.23659, abs=1e-5) and rate.high == pytest.approx(0.76341, abs=1e-5)


def test_results_that_all_hang_together_are_one_observation():
    assert win_rate([1, 1, 1, 0], clusters=["a"] * 4).low < 0.2


def test_other_numbers_are_no_results():
    with pytest.raises(ValueError, match="no results"):
        win_rate([0.7])


def test_a_win_rate_is_an_estimate_with_its_coverage_and_clusters():
    # rate 2/3; clusters sum to 2/3 and -2/3: sqrt(2 * 2 * 4/9) / 3 = 4/9
    found = win_rate([1, 1, 0, None], clusters=["a", "a", "b", "c"]).estimate()
    assert (found.n, found.num_asked, found.num_clusters) == (3, 4, 2)
    assert (found.interval, found.se) == (Kind.WILSON_CLUSTERED, pytest.approx(4 / 9))


def test_nothing_decided_says_why():
    assert win_rate([None, None]).estimate().undefined == "none of 2 is decided"
    assert win_rate([]).estimate().undefined == "no data"


def test_the_unit_vector_of_ties(samples):
    vector = json.loads(samples("EXPECTED.json").read_text())["unit_vectors"]["win_rate_ties"]
    found = win_rate([1] * vector["w"] + [0.5] * vector["t"] + [0] * vector["l"])
    assert (found.rate, found.se) == (vector["rate"], pytest.approx(vector["se"]))


def test_many_rates_at_once_equal_each_alone():
    rng = np.random.default_rng(1)
    group, results = rng.integers(0, 6, 200), rng.choice([0.0, 0.5, 1.0], 200)
    group[group == 4] = 3  # nothing of group 4; groups of one value and of one cluster are among the rest
    results[group == 5], clusters = 1.0, np.where(group == 2, 0, rng.integers(0, 15, 200))
    found = win_rates(group, results, clusters, undecided=np.array([0, 2, 0, 0, 3, 0]))
    for place, rate in enumerate(found):
        mine = group == place
        lost = [None] * rate.undecided
        alone = win_rate([*results[mine].tolist(), *lost], clusters=[*clusters[mine].tolist(), *lost])
        assert asdict(rate) == pytest.approx(asdict(alone), nan_ok=False), place


def test_the_other_sides_rate_is_its_mirror():
    assert asdict(win_rate([1, 1, 0.5, None]).mirrored) == pytest.approx(asdict(win_rate([0, 0, 0.5, None])))
