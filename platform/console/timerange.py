"""The span of time a page speaks of: a preset that moves with the clock, or two fixed ends; always with a zone.

In the address: `range=15m|1h|6h|1d|7d|30d|90d`, or `from=` and `to=` (ISO 8601; without an offset they are in the
zone), and `tz=<IANA zone>`. Without `tz` the zone is the one the person chose last (a cookie), else UTC.

    time_range = TimeRange.of(request, default="7d")
    rows = Turn.objects.filter(time_range.within("at"))
    render(request, "page.html", {"time_range": time_range})      # with {% include "partials/time_range.html" %}

Figures over time: pass `time_range.local(at)` as x and `is_time=True`, so that a drag over them sets the range.
"""

import zoneinfo
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from functools import cache
from urllib.parse import urlencode

from django.db.models import Q
from django.http import HttpRequest
from django.utils import timezone

PRESETS = {
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "1d": timedelta(days=1),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
    "90d": timedelta(days=90),
}
MAX_SPAN = timedelta(days=400)
EPOCH = datetime(2024, 1, 1, tzinfo=timezone.get_fixed_timezone(0))  # a Monday: buckets of days and weeks start there
BUCKETS = tuple(
    timedelta(minutes=minutes) for minutes in (1, 5, 15, 30, 60, 120, 360, 720, 1440, 7 * 1440)
)  # each divides the next, so that a rollup by hour serves all from an hour on
MAX_BUCKETS = 96
ZONE_COOKIE = "strop-zone"
DEFAULT_ZONE = "UTC"


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeRange:
    """From `start` (included) to `end` (excluded)."""

    start: datetime  # aware
    end: datetime  # aware; of a preset the moment of asking
    preset: str | None  # None: two fixed ends
    zone: str  # IANA name; times are written in it
    problem: str = ""  # what was wrong with the address, for the page to say; the default is used instead

    @classmethod
    def of(cls, request: HttpRequest, default: str = "1d", *, now: datetime | None = None) -> "TimeRange":
        """What the address asks for. Never raises: what cannot be read is said in `problem`."""
        now = now or timezone.now()
        zone = zone_of(request)
        asked = request.GET
        if asked.get("from") or asked.get("to"):
            try:
                start, end = _fixed(asked.get("from", ""), asked.get("to", ""), zone, now)
                return cls(start=start, end=end, preset=None, zone=zone)
            except ValueError as error:
                problem = str(error)
        else:
            preset = asked.get("range", default)
            problem = "" if preset in PRESETS else f"no range {preset[:20]!r}; choose from {', '.join(PRESETS)}"
            default = default if problem else preset
        return cls(start=now - PRESETS[default], end=now, preset=default, zone=zone, problem=problem)

    def within(self, column: str) -> Q:
        """Rows of the range; a moving range also takes what is dated a little ahead of our clock."""
        begun = Q(**{f"{column}__gte": self.start})
        return begun if self.preset is not None else begun & Q(**{f"{column}__lt": self.end})

    @property
    def span(self) -> timedelta:
        return self.end - self.start

    @property
    def before(self) -> "TimeRange":
        """As long, ending where this one starts: what to compare with."""
        return TimeRange(start=self.start - self.span, end=self.start, preset=None, zone=self.zone)

    @property
    def query(self) -> dict[str, str]:
        """Its parameters in an address; a moving range stays moving."""
        if self.preset is not None:
            return {"range": self.preset, "tz": self.zone}
        return {"from": self.start.isoformat(), "to": self.end.isoformat(), "tz": self.zone}

    @property
    def query_string(self) -> str:
        return urlencode(self.query)

    @property
    def bucket(self) -> timedelta:
        """Width of a bar: the finest that needs at most 96 of them."""
        for bucket in BUCKETS:
            if self.span <= bucket * MAX_BUCKETS:
                return bucket
        return BUCKETS[-1]

    @property
    def bucket_starts(self) -> list[datetime]:
        """Every bucket that overlaps the range, without gaps, aligned as PostgreSQL's `date_bin(bucket, at, EPOCH)`."""
        first = EPOCH + (self.start - EPOCH) // self.bucket * self.bucket
        return [first + i * self.bucket for i in range(-(-(self.end - first) // self.bucket))]

    @property
    def tzinfo(self) -> tzinfo:
        return zoneinfo.ZoneInfo(self.zone)

    def local(self, at: datetime) -> datetime:
        """The moment on the clock of the zone, for figures: Plotly draws the clock and ignores the offset."""
        return at.astimezone(self.tzinfo)

    @property
    def title(self) -> str:
        """last 7d, or 2026-11-29 06:00 to 2026-11-30 06:00."""
        if self.preset is not None:
            return f"last {self.preset}"
        return f"{self.local(self.start):%Y-%m-%d %H:%M} to {self.local(self.end):%Y-%m-%d %H:%M}"

    @property
    def start_input(self) -> str:
        """For a `datetime-local` field."""
        return f"{self.local(self.start):%Y-%m-%dT%H:%M}"

    @property
    def end_input(self) -> str:
        return f"{self.local(self.end):%Y-%m-%dT%H:%M}"

    @property
    def presets(self) -> list[str]:
        return list(PRESETS)


def zone_of(request: HttpRequest) -> str:
    """The zone in the address, else the one chosen last, else UTC; what is no zone counts as not given."""
    for name in (request.GET.get("tz"), request.COOKIES.get(ZONE_COOKIE)):
        if name and name in zones():
            return name
    return DEFAULT_ZONE


@cache
def zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def _fixed(start: str, end: str, zone: str, now: datetime) -> tuple[datetime, datetime]:
    """Raises ValueError that says which end cannot be used and why. Without an end it is now."""
    first, last = _moment("from", start, zone), _moment("to", end, zone) if end else now
    if last <= first:
        raise ValueError(f"from {start[:40]} is not before to {end[:40] or 'now'}")
    if last - first > MAX_SPAN:
        raise ValueError(f"the range is {(last - first).days:,} days long; at most {MAX_SPAN.days} are shown at once")
    return first, last


def _moment(name: str, text: str, zone: str) -> datetime:
    try:
        at = datetime.fromisoformat(text.replace(" ", "+", 1) if text.count(" ") == 1 and "T" in text else text)
        return at if at.tzinfo else at.replace(tzinfo=zoneinfo.ZoneInfo(zone))
    except (ValueError, OverflowError):
        raise ValueError(f"{name} is {text[:40]!r}; write a time like 2026-11-30T06:00") from None
