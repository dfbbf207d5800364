"""Reads over time, for pages: accept shares with intervals, signals, outcomes and latencies of the current tenant.

Ranges in whole hours are read from the hourly counts and nothing else, so they are as fresh as the last count, which is
seconds old. Ranges cut finer than an hour are short by rule and read from the rows themselves, through an index that
starts with project and time. Both say the same wherever both can be asked.
"""

from collections.abc import Collection
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Count, Q, Sum

from feedback.intervals import Bounds, Moments, bounds_of
from feedback.models import LatencyRollup, SignalRollup, TurnRollup, UserRollup
from feedback.rollups import HOUR, quantile, whole_hours
from registry.tenancy import current_project_id

MAX_FINE = timedelta(hours=12)  # the longest range whose rows are read one by one
REAL_USERS = "production"
EPOCH = datetime(2024, 1, 1, tzinfo=UTC)  # a Monday: buckets of days and weeks start there


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A range of time as it can be answered: [start, end), cut into buckets, of which the first may begin before it."""

    start: datetime
    end: datetime
    bucket: timedelta
    is_fine: bool  # finer than hours, read from rows

    @classmethod
    def of(cls, start: datetime, end: datetime, bucket: timedelta) -> "Span":
        """The range itself when it is short and wants buckets below an hour, else the whole hours that hold it."""
        if bucket < HOUR and end - start <= MAX_FINE:
            return cls(start=start, end=end, bucket=bucket, is_fine=True)
        start, end = whole_hours(start, end)
        hours = max(1, round(bucket / HOUR))
        return cls(start=start, end=end, bucket=hours * HOUR, is_fine=False)

    @classmethod
    def in_hours(cls, start: datetime, end: datetime) -> "Span":
        """The whole hours that hold the range, undivided."""
        start, end = whole_hours(start, end)
        return cls(start=start, end=end, bucket=max(HOUR, end - start), is_fine=False)

    @property
    def starts(self) -> list[datetime]:
        """When each bucket starts, without gaps."""
        first = EPOCH + (self.start - EPOCH) // self.bucket * self.bucket
        return [first + place * self.bucket for place in range(-((first - self.end) // self.bucket))]


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Who answered: a checkpoint, an external model, or, with neither, nobody known."""

    policy: str | None = None
    version: int | None = None
    model: str | None = None

    def __str__(self) -> str:
        if self.policy is not None:
            return f"{self.policy}@{self.version}"
        return self.model or "unknown origin"


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """The accept share of one origin in one bucket of time, with all that its interval needs."""

    at: datetime  # the start of the bucket
    origin: Origin
    moments: Moments

    @property
    def turns(self) -> int:
        """Settled turns that were shown."""
        return self.moments.turns

    @property
    def value(self) -> float:
        return self.moments.accepted / self.moments.turns

    @property
    def bounds(self) -> Bounds:
        return bounds_of(self.moments)


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """What became of turns, summed over hours and origins."""

    turns: int = 0
    errors: int = 0
    shown: int = 0
    settled: int = 0  # of those shown; the sum of the four outcomes
    accepted: int = 0
    rejected: int = 0
    silent: int = 0
    unknown: int = 0
    with_usage: int = 0  # turns whose input and output tokens are known
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    with_latency: int = 0
    latency_us: int = 0
    without_logprobs: int = 0  # of our own weights
    from_future: int = 0
    with_conduct: int = 0  # turns of which is known what they do (`feedback.conduct`); the next three are among them
    bad_calls: int = 0
    asked_back: int = 0
    without_edit: int = 0


COUNTED = [field.name for field in fields(Counts)]


def counts(span: Span, *, policy: str | None = None, source: str | None = None) -> Counts:
    """Of one policy or of everything, of one source or of all; in whole hours."""
    row = _rollups(TurnRollup, span, policy, source).aggregate(**{name: Sum(name) for name in COUNTED})
    return Counts(**{name: int(value or 0) for name, value in row.items()})


def counts_by_origin(span: Span, *, source: str | None = None) -> dict[Origin, Counts]:
    """As `counts`, apart for every checkpoint and model."""
    rows = _rollups(TurnRollup, span, None, source).values("policy", "version", "model")
    return {
        Origin(policy=row["policy"], version=row["version"], model=row["model"]): Counts(
            **{name: int(row[f"sum_{name}"]) for name in COUNTED}
        )
        for row in rows.annotate(**{f"sum_{name}": Sum(name) for name in COUNTED}).order_by(
            "policy", "version", "model"
        )
    }


def counts_by_version(
    span: Span, *, policy: str, versions: Collection[int], source: str = REAL_USERS
) -> dict[int, Counts]:
    """As `counts`, apart for each of these versions; one without a turn is left out."""
    rows = _rollups(TurnRollup, span, policy, source).filter(version__in=versions).values("version")
    return {
        row["version"]: Counts(**{name: int(row[f"sum_{name}"]) for name in COUNTED})
        for row in rows.annotate(**{f"sum_{name}": Sum(name) for name in COUNTED}).order_by("version")
    }


def num_signals_by_version(
    span: Span, kind: str, *, policy: str, versions: Collection[int], source: str = REAL_USERS
) -> dict[int, int]:
    """Signals of one kind about the turns of these versions, by the hour of the signal."""
    rows = _rollups(SignalRollup, span, policy, source).filter(version__in=versions, kind=kind)
    return dict(rows.values_list("version").annotate(n=Sum("signals")).order_by("version"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Users:
    """Who was answered in whole hours."""

    num: int  # different users with a turn, whatever the number of their turns and sessions
    turns_of_nobody: int  # whose sender named no user


def users(span: Span) -> Users:
    of_each = _rollups(UserRollup, span, None, None).values("user").annotate(num_turns=Sum("turns"))
    found = of_each.aggregate(num=Count("user"), nobody=Sum("num_turns", filter=Q(user=None)))
    return Users(num=found["num"], turns_of_nobody=int(found["nobody"] or 0))


def versions(span: Span, *, policy: str, source: str = REAL_USERS) -> list[int]:
    """Those with settled turns in the whole hours of the span, the newest first."""
    rows = _rollups(TurnRollup, span, policy, source).filter(settled__gt=0, version__isnull=False)
    return list(rows.order_by("-version").values_list("version", flat=True).distinct())


def shares(
    span: Span,
    *,
    policy: str | None = None,
    source: str | None = REAL_USERS,
    versions: Collection[int] | None = None,
    is_divided: bool = True,
) -> list[Share]:
    """One for each origin and bucket with settled turns, by time, then origin; undivided, one for each origin.

    Of a policy with `versions`: of these alone, which an index leads to in the order of their users.
    """
    groups = [*["at"] * is_divided, *(["policy", "version", "model"] if policy is None else ["version"])]
    conditions = {
        "policy = %(policy)s": policy, "source = %(source)s": source, "version = ANY(%(versions)s)": versions,
    }  # fmt: skip
    query = _SHARES.format(
        rows=_FINE if span.is_fine else _HOURLY,
        where=" AND ".join(text for text, value in conditions.items() if value is not None) or "true",
        groups=", ".join(groups),
        at="at" if is_divided else "%(start)s::timestamptz",
        origin="policy, version, model" if policy is None else "%(policy)s::text, version, NULL",
    )
    values: dict[str, Any] = {
        "project": current_project_id(), "start": span.start, "end": span.end, "policy": policy, "source": source,
        "versions": None if versions is None else list(versions), "bucket": span.bucket, "epoch": EPOCH,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        return [
            Share(
                at=at,
                origin=Origin(policy=name, version=version, model=model),
                moments=Moments(**dict(zip(_MOMENTS, map(int, moments), strict=True))),
            )
            for at, name, version, model, *moments in cursor.fetchall()
        ]


def signals(span: Span, *, policy: str | None = None) -> list[tuple[datetime, str, int]]:
    """(start of the bucket, kind, number of signals), empty buckets left out.

    Of a policy: signals about its turns. Without one: all, orphans and signals about sessions too.
    """
    values: dict[str, Any] = {
        "project": current_project_id(), "start": span.start, "end": span.end, "policy": policy,
        "bucket": span.bucket, "epoch": EPOCH,
    }  # fmt: skip
    rows = _FINE_SIGNALS if span.is_fine else _HOURLY_SIGNALS
    if span.is_fine and policy is not None:
        rows = _FINE_SIGNALS_OF_POLICY
    where = "policy = %(policy)s" if policy is not None else "true"
    with connection.cursor() as cursor:
        cursor.execute(_SIGNALS.format(rows=rows, where=where), values)
        return [(at, kind, int(number)) for at, kind, number in cursor.fetchall()]


def latency_quantile(span: Span, share: float, *, policy: str | None = None, measure: str = "latency") -> float | None:
    """In ms, within 4.5 %, in whole hours; None where no turn says how long it took."""
    rows = _rollups(LatencyRollup, span, policy, None).filter(measure=measure)
    return quantile(dict(rows.values_list("bucket").annotate(n=Sum("turns"))), share)


def _rollups(model: Any, span: Span, policy: str | None, source: str | None) -> Any:
    start, end = whole_hours(span.start, span.end)
    rows = model.objects.filter(hour__gte=start, hour__lt=end)
    if policy is not None:
        rows = rows.filter(policy=policy)
    return rows if source is None else rows.filter(source=source)


_HOURLY = """
SELECT hour AS at, policy, version, model, source, "user", settled, accepted FROM feedback_userrollup
WHERE project_id = %(project)s AND hour >= %(start)s AND hour < %(end)s AND settled > 0
"""
_FINE = """
SELECT at, policy, version, model, source, "user", 1 AS settled, (outcome = 'accept')::int AS accepted
FROM feedback_turn
WHERE project_id = %(project)s AND at >= %(start)s AND at < %(end)s AND is_shown AND settled_at IS NOT NULL
"""
_MOMENTS = [field.name for field in fields(Moments)]  # in the order in which they are selected
# Users first, over all hours of a bucket: two hours of one user are one cluster.
_SHARES = """
SELECT {at}, {origin}, sum(turns), sum(accepted),
  sum(CASE WHEN "user" IS NULL THEN turns ELSE 1 END),
  sum(CASE WHEN "user" IS NULL THEN accepted ELSE accepted * accepted END),
  sum(CASE WHEN "user" IS NULL THEN accepted ELSE accepted * turns END),
  sum(CASE WHEN "user" IS NULL THEN turns ELSE turns * turns END)
FROM (
  SELECT {groups}, "user", sum(settled) AS turns, sum(accepted) AS accepted
  FROM (
    SELECT date_bin(%(bucket)s, at, %(epoch)s) AS at, policy, version, model, "user", settled, accepted
    FROM ({rows}) counted WHERE {where}
  ) binned GROUP BY {groups}, "user"
) users
GROUP BY {groups} ORDER BY {groups}
"""
_HOURLY_SIGNALS = """
SELECT hour AS at, policy, kind, signals FROM feedback_signalrollup
WHERE project_id = %(project)s AND hour >= %(start)s AND hour < %(end)s
"""
_FINE_SIGNALS = """
SELECT at, kind, 1 AS signals FROM feedback_usersignal
WHERE project_id = %(project)s AND at >= %(start)s AND at < %(end)s
"""
_FINE_SIGNALS_OF_POLICY = """
SELECT s.at, t.policy, s.kind, 1 AS signals
FROM feedback_usersignal s JOIN feedback_turn t ON t.id = s.turn_id
WHERE s.project_id = %(project)s AND s.at >= %(start)s AND s.at < %(end)s
"""
_SIGNALS = """
SELECT date_bin(%(bucket)s, at, %(epoch)s), kind, sum(signals)
FROM ({rows}) counted WHERE {where} GROUP BY 1, 2 ORDER BY 1, 2
"""
