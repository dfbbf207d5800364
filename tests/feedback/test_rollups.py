"""Hours and histograms, worked by hand."""

import random
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedback.rollups import LAST_BUCKET, bucket_of, hour_of, merged, middle_of, quantile, runs_of, whole_hours

SIX = datetime(2026, 11, 30, 6, tzinfo=UTC)


def test_an_hour_begins_at_its_first_moment_in_utc_whatever_the_zone():
    india = timezone(timedelta(hours=5, minutes=30))
    assert hour_of(datetime(2026, 11, 30, 11, 45, 7, 9, tzinfo=india)) == SIX


def test_a_range_is_widened_to_whole_hours_and_one_of_whole_hours_stays():
    assert whole_hours(SIX + timedelta(minutes=5), SIX + timedelta(minutes=61)) == (SIX, SIX + timedelta(hours=2))
    assert whole_hours(SIX, SIX + timedelta(hours=1)) == (SIX, SIX + timedelta(hours=1))


def test_neighbouring_hours_are_one_range():
    six, seven, nine = (SIX + timedelta(hours=place) for place in (0, 1, 3))
    assert runs_of([nine, six, seven, six]) == [(six, SIX + timedelta(hours=2)), (nine, SIX + timedelta(hours=4))]
    assert runs_of([]) == []


@pytest.mark.parametrize(
    ("ms", "bucket"), [(0, 0), (0.99, 0), (1, 1), (1.08, 1), (2, 9), (1024, 81), (1e12, LAST_BUCKET)]
)
def test_a_bucket_is_an_eighth_of_an_octave(ms, bucket):
    assert bucket_of(ms) == bucket


@given(st.floats(min_value=1, max_value=1e7))
def test_the_middle_of_a_bucket_is_within_four_and_a_half_percent_of_all_it_holds(ms):
    assert middle_of(bucket_of(ms)) == pytest.approx(ms, rel=0.046)


def test_a_quantile_of_the_histogram_is_that_of_the_numbers():
    chance = random.Random(1)
    numbers = sorted(chance.lognormvariate(5, 1) for _ in range(1000))
    histogram = merged({bucket_of(number): 1} for number in numbers)
    assert quantile(histogram, 0.5) == pytest.approx(numbers[499], rel=0.05)
    assert quantile(histogram, 0.95) == pytest.approx(numbers[949], rel=0.05)


def test_without_turns_there_is_no_quantile():
    assert quantile({}, 0.5) is None
