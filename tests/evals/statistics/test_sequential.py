import math

import numpy as np
import pytest

from evals.statistics.battles import from_winners
from evals.statistics.bradley_terry import rank_battles
from evals.statistics.estimate import Kind, around, unknown
from evals.statistics.means import estimate_mean
from evals.statistics.sequential import MIN_N, bounded_error, half_width, likelihood_ratio, look

TAU = 0.1


def test_one_look_gives_the_reference_values():
    # n 1000, d .05, V .5, tau^2 .01; a fixed sample size would give .04383
    se = math.sqrt(0.5 / 1000)
    found = look(around(0.05, se, n=1000), tau=TAU)
    assert found.likelihood_ratio == pytest.approx(2.3601, abs=1e-4)
    assert found.estimate.high - 0.05 == pytest.approx(0.06888, abs=1e-5)
    assert 1.959964 * se == pytest.approx(0.04383, abs=1e-5)
    assert (found.estimate.interval, found.is_decided) == (Kind.SEQUENCE, False)
    assert found.p_value == pytest.approx(1 / 2.3601, abs=1e-4)


def test_the_formula_is_the_one_in_n_and_v():
    n, effect, variance, square = 400, 0.07, 0.3, TAU**2
    plain = math.sqrt(variance / (variance + n * square)) * math.exp(
        n**2 * square * effect**2 / (2 * variance * (variance + n * square))
    )
    assert likelihood_ratio(effect, math.sqrt(variance / n), tau=TAU) == pytest.approx(plain)


@pytest.mark.parametrize("se", [0.001, 0.03, 0.5])
def test_the_interval_ends_where_the_test_decides(se):
    edge = half_width(se, tau=TAU, alpha=0.05)
    assert likelihood_ratio(edge, se, tau=TAU) == pytest.approx(20.0)


def test_a_strong_effect_is_decided_and_leaves_0_outside():
    found = look(around(0.5, 0.02, n=200), tau=TAU)
    assert found.is_decided and found.estimate.low > 0


@pytest.mark.parametrize(
    ("effect", "why"),
    [
        (around(0.1, 0.05, n=99), "99 of the 100 independent observations that a running error needs"),
        (
            around(0.1, 0.05, n=5000, num_clusters=12),
            "12 of the 100 independent observations that a running error needs",
        ),
        (around(0.1, 0.0, n=500), "what never varied says nothing about the error"),
        (unknown("no data"), "no data"),
    ],
)
def test_before_the_error_is_known_nothing_is_decided(effect, why):
    found = look(effect, tau=TAU)
    assert (found.p_value, found.likelihood_ratio, found.is_decided) == (None, None, False)
    assert (found.estimate.undefined, found.estimate.low) == (why, None)


def test_tau_is_a_size():
    with pytest.raises(ValueError, match="above 0"):
        look(around(0.1, 0.1, n=500), tau=0.0)


def test_a_rating_can_be_watched_too():
    votes = [("a", "b", "left")] * 120 + [("a", "b", "right")] * 60 + [("b", "a", "tie")] * 20
    rating = rank_battles(from_winners(*zip(*votes, strict=True))).estimate("a")
    found = look(rating, tau=50.0)
    assert found.estimate.interval == Kind.SEQUENCE
    assert found.estimate.low < rating.low < rating.high < found.estimate.high


def test_bounded_scores_need_no_estimated_error():
    assert bounded_error(100, low=0, high=1) == pytest.approx(0.05)
    with pytest.raises(ValueError, match="low below high"):
        bounded_error(100, low=1, high=1)


# --- Streams: looking after every single observation ---

STREAMS, LENGTH = 2_000, 2_000


def running(streams):
    """Mean and standard error after each observation."""
    n = np.arange(1, streams.shape[1] + 1)
    mean = streams.cumsum(axis=1) / n
    variance = np.maximum((streams**2).cumsum(axis=1) / n - mean**2, 0) * n / np.maximum(n - 1, 1)
    return mean, np.sqrt(variance / n)


def ever_decided(streams, *, tau=TAU):
    """Share of streams in which some look, from MIN_N on, found L >= 20."""
    mean, se = running(streams)
    looks = slice(MIN_N - 1, None)
    return (likelihood_ratio(mean[:, looks], se[:, looks], tau=tau) >= 20).any(axis=1).mean()


def differences(share_new, share_old, *, seed):
    """Paired differences of two sides' right answers: -1, 0 or 1."""
    rng = np.random.default_rng(seed)
    new, old = rng.random((STREAMS, LENGTH)) < share_new, rng.random((STREAMS, LENGTH)) < share_old
    return new.astype(float) - old


def test_a_a_streams_are_found_different_at_most_one_time_in_twenty_however_often_one_looks():
    assert ever_decided(differences(0.5, 0.5, seed=1)) <= 0.05


def test_the_usual_test_at_every_look_is_wrong_far_more_often():
    # why the sequence is needed: |mean / se| > 1.96 at some look
    mean, se = running(differences(0.5, 0.5, seed=1))
    assert (np.abs(mean[:, MIN_N - 1 :]) > 1.959964 * se[:, MIN_N - 1 :]).any(axis=1).mean() > 0.25


def test_the_sequence_holds_the_truth_at_all_looks_at_once():
    # 5 % misses at most, over streams with a true difference of .1
    mean, se = running(differences(0.6, 0.5, seed=2))
    widths = half_width(se[:, MIN_N - 1 :], tau=TAU, alpha=0.05)
    assert (np.abs(mean[:, MIN_N - 1 :] - 0.1) > widths).any(axis=1).mean() <= 0.05


def test_the_bounded_sequence_holds_from_the_first_look_on():
    rng = np.random.default_rng(3)
    streams = (rng.random((STREAMS, LENGTH)) < 0.03).astype(float)  # skewed: the estimated error is worst here
    n = np.arange(1, LENGTH + 1)
    widths = half_width(1 / (2 * np.sqrt(n)), tau=TAU, alpha=0.05)
    assert (np.abs(streams.cumsum(axis=1) / n - 0.03) > widths).any(axis=1).mean() <= 0.05


def test_power_grows_with_the_effect():
    found = [ever_decided(differences(0.5 + effect, 0.5, seed=4)) for effect in (0.02, 0.05, 0.1)]
    assert found[0] < found[1] < found[2]
    assert found[2] > 0.99  # 2,000 pairs at .1: se .0158


def test_looks_on_real_estimates_agree_with_the_columns():
    stream = differences(0.6, 0.5, seed=5)[0]
    mean, se = running(stream[None, :])
    found = look(estimate_mean(stream.tolist()), tau=TAU)
    assert found.likelihood_ratio == pytest.approx(float(likelihood_ratio(mean[0, -1], se[0, -1], tau=TAU)))
