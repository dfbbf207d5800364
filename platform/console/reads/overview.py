"""Is the loop healthy: what came of everything received, signals and accept shares over time, rounds, marks, alarms.

Reads are bounded by the page's time range; those of turns and signals come from the hourly counts (`feedback.hourly`).
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet, Sum
from django.utils import timezone

from console.timerange import BUCKETS, TimeRange
from feedback import hourly
from feedback.hourly import Share, Span
from feedback.models import OutcomeCount
from feedback.selectors import AcceptShare
from registry.models import Policy
from rl_online.models import Alarm, AlarmState, RewardBatch, UpdateRun, UpdateState

DEFAULT_RANGE = "1h"
SHARES_REACH = timedelta(days=90)  # of accept shares that no page's range bounds
NUM_KINDS = 4  # drawn apart; rarer kinds are drawn together as "other"
MAX_POINTS = 30  # of a line over time
NUM_LINES = 8  # checkpoints drawn over time, the newest
MAX_VERSIONS = 1000  # of a policy whose shares are told at once
NUM_BARS = 12  # checkpoints drawn side by side, the newest
OVER = [state for state in UpdateState.values if UpdateState(state).is_over]
ACTIVE = [state for state in UpdateState.values if state not in OVER]
REQUEST = "request:"  # outcomes of requests refused whole, which are no items
SEVERITIES = ("critical", "warning", "info")


def span_of(time_range: TimeRange) -> Span:
    return Span.of(time_range.start, time_range.end, time_range.bucket)


def shares_span(time_range: TimeRange) -> Span:
    """In wider buckets than signals: an interval of a few turns says little."""
    buckets = [bucket for bucket in BUCKETS if time_range.span <= bucket * MAX_POINTS]
    return Span.of(time_range.start, time_range.end, buckets[0] if buckets else BUCKETS[-1])


@dataclass(frozen=True, kw_only=True, slots=True)
class SignalRates:
    """Counts a bucket for every kind; `times` are the buckets' starts, without gaps."""

    times: list[datetime]
    counts: dict[str, list[int]]
    bucket: timedelta
    rest: tuple[str, ...] = ()  # the kinds that are drawn together

    @property
    def total(self) -> int:
        return sum(map(sum, self.counts.values()))

    @property
    def bucket_minutes(self) -> float:
        return self.bucket.total_seconds() / 60


def signal_rates(span: Span, *, policy: str | None = None) -> SignalRates:
    """From the first signal of the span on; empty without any."""
    counts: dict[str, dict[datetime, int]] = {}
    for at, kind, number in hourly.signals(span, policy=policy):
        counts.setdefault(kind, {})[at] = number
    if not counts:
        return SignalRates(times=[], counts={}, bucket=span.bucket)
    times = span.starts
    ranked = sorted(counts, key=lambda kind: (-sum(counts[kind].values()), kind))
    rest = ranked[NUM_KINDS:] if len(ranked) > NUM_KINDS + 1 else []  # one kind alone keeps its name
    series = {kind: [counts[kind].get(at, 0) for at in times] for kind in ranked if kind not in rest}
    if rest:
        series["other"] = [sum(counts[kind].get(at, 0) for kind in rest) for at in times]
    return SignalRates(times=times, counts=series, bucket=span.bucket, rest=tuple(rest))


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceptShares:
    """Accept shares among real users by version, of the newest versions and the one that serves."""

    whole: dict[int, Share]  # in the whole span
    over_time: dict[int, list[Share]]  # in its buckets


def accept_shares_over(span: Span, policy: Policy, *, serving: int | None) -> AcceptShares:
    known = None if span.is_fine else hourly.versions(span, policy=policy.name)
    whole = _by_version(
        hourly.shares(span, policy=policy.name, versions=_drawn(known, NUM_BARS, serving), is_divided=False)
    )
    drawn = _drawn(sorted(whole, reverse=True), NUM_LINES, serving)
    over_time: dict[int, list[Share]] = {version: [] for version in sorted(drawn or ()) if version in whole}
    for share in hourly.shares(span, policy=policy.name, versions=drawn):
        if share.origin.version in over_time:
            over_time[share.origin.version].append(share)
    return AcceptShares(whole=whole, over_time=over_time)


def _drawn(newest_first: list[int] | None, most: int, serving: int | None) -> list[int] | None:
    """None where the versions are not known: all of them."""
    return newest_first and [
        version for place, version in enumerate(newest_first) if place < most or version == serving
    ]


def _by_version(shares: list[Share]) -> dict[int, Share]:
    return {share.origin.version: share for share in shares if share.origin.version is not None}


def accept_shares(policy: Policy, *, versions: Collection[int] | None = None) -> dict[int, AcceptShare]:
    """Version -> accept share among real users in the last 90 days, for those of these versions that have any.

    Without `versions`: of the newest MAX_VERSIONS.
    """
    now = timezone.now()
    span = Span.in_hours(now - SHARES_REACH, now)
    asked = hourly.versions(span, policy=policy.name)[:MAX_VERSIONS] if versions is None else versions
    found = _by_version(hourly.shares(span, policy=policy.name, versions=asked, is_divided=False))
    return {version: _accept_share(policy, version, found[version]) for version in sorted(found)}


def _accept_share(policy: Policy, version: int, share: Share) -> AcceptShare:
    bounds = share.bounds
    return AcceptShare(
        key=f"{policy.name}@{version}",
        turns=share.turns,
        accepted=share.moments.accepted,
        share=share.value,
        low=bounds.low,
        high=bounds.high,
        interval=bounds.interval,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One step of the way from a received item to a promoted checkpoint."""

    title: str
    n: int
    unit: str
    hint: str  # how it is counted
    of: int | None = None  # the step before, where it counts the same things; None: it counts others

    @property
    def share(self) -> float | None:
        return self.n / self.of if self.of else None


def funnel(span: Span, policy: Policy, *, received: int) -> list[Step]:
    """In whole hours; each step counted when it happened, so a late step can be larger than an early one.

    `received` are the items of `outcomes` in this span.
    """
    counts = hourly.counts(span, policy=policy.name)
    sealed = RewardBatch.objects.filter(policy=policy, created_at__gte=span.start, created_at__lt=span.end)
    trained = sealed.filter(updates__checkpoint__isnull=False).distinct()
    promoted = sealed.filter(updates__state=UpdateState.PROMOTED).distinct()
    num_sealed, num_trained, num_promoted = (_samples(batches) for batches in (sealed, trained, promoted))
    of_policy = f"answers of {policy.name} made in this time, from any source"
    return [
        Step(title="Received", n=received, unit="items", hint="turns and signals at the door, whatever came of them"),
        Step(title="Turns", n=counts.turns, unit="turns", hint=of_policy),
        Step(title="Shown", n=counts.shown, unit="turns", hint="of these, what a user saw", of=counts.turns),
        Step(title="Settled", n=counts.settled, unit="turns", hint="shown, and labelled by now", of=counts.shown),
        Step(title="Accepted", n=counts.accepted, unit="turns", hint="settled with outcome accept", of=counts.settled),
        Step(title="Sealed", n=num_sealed, unit="samples", hint="in batches sealed in this time, with corrections"),
        Step(title="Trained", n=num_trained, unit="samples", hint="in a checkpoint made from them", of=num_sealed),
        Step(title="Promoted", n=num_promoted, unit="samples", hint="whose checkpoint came to serve", of=num_trained),
    ]


def _samples(batches: QuerySet[RewardBatch]) -> int:
    return sum(number for _, number in batches.values_list("id", "num_samples"))


def outcomes(span: Span) -> dict[str, int]:
    """How many items ended in which outcome in these whole hours, `request:<status>` for requests refused whole."""
    rows = OutcomeCount.objects.filter(hour__gte=span.start, hour__lt=span.end).values_list("outcome")
    return dict(rows.annotate(n=Sum("count")).filter(n__gt=0).order_by("outcome"))


def running_update(policy: Policy) -> UpdateRun | None:
    return (
        UpdateRun.objects.filter(policy=policy, state__in=ACTIVE)
        .select_related("policy", "batch", "parent__policy")
        .order_by("-created_at")
        .first()
    )


def rounds(policy: Policy, *, last: int = 8) -> list[UpdateRun]:
    """The newest finished updates that have timings, newest first."""
    runs = UpdateRun.objects.filter(policy=policy, state__in=OVER).exclude(timings={})
    return list(runs.select_related("policy").order_by("-created_at")[:last])


def standing_alarms() -> list[Alarm]:
    """Open ones first, the gravest first, then the newest."""
    found = Alarm.objects.exclude(state=AlarmState.CLOSED).order_by("-opened_at")[:50]
    return sorted(found, key=lambda alarm: (alarm.state != AlarmState.OPEN, SEVERITIES.index(alarm.severity)))
