"""Hours, and what is kept of them: how moments fall into hours, and latencies into the buckets of a histogram. Pure.

A bucket spans 2^(1/8), so a quantile read from the histogram is within 4.5 % of the exact one. Bucket 0 holds
everything below 1 ms, the last one everything from about 4.4 h on.
"""

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

HOUR = timedelta(hours=1)
PER_OCTAVE = 8
LAST_BUCKET = 192


def hour_of(moment: datetime) -> datetime:
    """The first moment of its hour, in UTC, as the database's `date_bin` cuts them."""
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def whole_hours(start: datetime, end: datetime) -> tuple[datetime, datetime]:
    """The smallest range of whole hours that holds [start, end)."""
    last = hour_of(end)
    return hour_of(start), last if last == end else last + HOUR


def runs_of(hours: Iterable[datetime]) -> list[tuple[datetime, datetime]]:
    """Neighbouring hours as ranges [start, end), in order. Example: 6 h, 7 h, 9 h -> [6 h, 8 h), [9 h, 10 h)."""
    runs: list[tuple[datetime, datetime]] = []
    for hour in sorted(set(hours)):
        if runs and runs[-1][1] == hour:
            runs[-1] = (runs[-1][0], hour + HOUR)
        else:
            runs.append((hour, hour + HOUR))
    return runs


def bucket_of(milliseconds: float) -> int:
    """Example: 1 ms is in bucket 1, 2 ms in bucket 9."""
    if milliseconds < 1:
        return 0
    return min(LAST_BUCKET, 1 + math.floor(PER_OCTAVE * math.log(milliseconds) / math.log(2)))  # as the SQL counts


def middle_of(bucket: int) -> float:
    """The geometric middle of a bucket, in ms."""
    return 0.5 if bucket == 0 else 2 ** ((bucket - 0.5) / PER_OCTAVE)


def quantile(histogram: Mapping[int, int], share: float) -> float | None:
    """The latency in ms that `share` of the counted turns did not exceed; None when none is counted."""
    wanted = share * sum(histogram.values())
    seen = 0
    for bucket in sorted(histogram):
        seen += histogram[bucket]
        if seen >= wanted and histogram[bucket]:
            return middle_of(bucket)
    return None


def merged(histograms: Iterable[Mapping[int, int]]) -> dict[int, int]:
    total: dict[int, int] = {}
    for histogram in histograms:
        for bucket, number in histogram.items():
            total[bucket] = total.get(bucket, 0) + number
    return total
