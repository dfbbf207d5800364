"""The time range of a page: presets, fixed ends, zones, buckets; what cannot be read is said, never raised."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from django.test import RequestFactory
from hypothesis import given
from hypothesis import strategies as st

from console.timerange import MAX_BUCKETS, PRESETS, TimeRange

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def ask(query="", *, cookie=None, default="1d"):
    request = RequestFactory().get(f"/{query}")
    if cookie:
        request.COOKIES["strop-zone"] = cookie
    return TimeRange.of(request, default, now=NOW)


def test_without_a_word_it_is_the_default_up_to_now():
    found = ask()
    assert (found.start, found.end, found.preset, found.zone) == (NOW - timedelta(days=1), NOW, "1d", "UTC")


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_reaches_back_from_now(preset):
    assert ask(f"?range={preset}").start == NOW - PRESETS[preset]


def test_a_moving_range_stays_moving_in_its_address():
    assert ask("?range=6h&tz=Europe/Berlin").query == {"range": "6h", "tz": "Europe/Berlin"}


def test_fixed_ends_without_an_offset_are_on_the_clock_of_the_zone():
    found = ask("?from=2026-11-29T06:00&to=2026-11-29T18:00&tz=America/New_York")
    assert found.start == datetime(2026, 11, 29, 11, tzinfo=UTC) and found.preset is None
    assert found.title == "2026-11-29 06:00 to 2026-11-29 18:00"


def test_its_own_address_leads_back_to_it():
    found = ask("?from=2026-11-29T06:00&to=2026-11-29T18:00&tz=Asia/Kolkata")
    again = ask(f"?{found.query_string}")
    assert again == found


def test_an_offset_whose_plus_became_a_space_is_still_read():
    assert ask("?from=2026-11-29T06:00+02:00").start == datetime(2026, 11, 29, 4, tzinfo=UTC)


def test_without_an_end_it_is_now():
    assert ask("?from=2026-11-29T06:00").end == NOW


def test_the_zone_chosen_last_is_used_until_the_address_names_one():
    assert ask(cookie="Asia/Tokyo").zone == "Asia/Tokyo"
    assert ask("?tz=UTC", cookie="Asia/Tokyo").zone == "UTC"
    assert ask("?tz=Mars/Base", cookie="../../etc/passwd").zone == "UTC"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("?range=2y", "no range '2y'"),
        ("?from=yesterday", "from is 'yesterday'; write a time like"),
        ("?from=2026-11-29T06:00&to=nonsense", "to is 'nonsense'"),
        ("?from=2026-11-29T06:00&to=2026-11-28T06:00", "is not before"),
        ("?from=2020-01-01T00:00", "days long; at most 400"),
        ("?from=0001-01-01T00:00&tz=Asia/Tokyo", ""),
    ],
)
def test_what_cannot_be_read_is_said_and_the_default_shown(query, said):
    found = ask(query)
    assert said in found.problem and found.problem and found.preset == "1d"


@pytest.mark.parametrize(
    ("preset", "minutes"), [("15m", 1), ("1h", 1), ("6h", 5), ("1d", 15), ("7d", 120), ("30d", 720), ("90d", 1440)]
)
def test_the_bars_of_a_chart_are_as_fine_as_can_be_told_apart(preset, minutes):
    assert ask(f"?range={preset}").bucket == timedelta(minutes=minutes)


@given(
    st.datetimes(min_value=datetime(2020, 1, 1), max_value=datetime(2030, 1, 1)),
    st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta(days=400)),
)
def test_the_buckets_cover_the_range_without_gaps(start, span):
    start = start.replace(tzinfo=UTC)
    found = TimeRange(start=start, end=start + span, preset=None, zone="UTC")
    starts = found.bucket_starts
    assert starts[0] <= found.start < starts[0] + found.bucket
    assert starts[-1] < found.end <= starts[-1] + found.bucket
    assert len(starts) <= MAX_BUCKETS + 1
    assert all(b - a == found.bucket for a, b in pairwise(starts))


def test_what_came_before_is_as_long_and_ends_where_it_starts():
    found = ask("?range=7d")
    assert found.before.end == found.start and found.before.span == found.span


def test_figures_get_the_clock_of_the_zone():
    assert ask("?tz=Asia/Tokyo").local(NOW).hour == 21
