"""Is the loop healthy: signals over time, accept share by checkpoint, rounds, what came of everything received."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, DateTimeField, F, Func, Value
from django.utils import timezone

from feedback.models import UserSignal
from feedback.selectors import AcceptShare, accept_share
from registry.models import AuditEvent, Policy
from registry.services import parse_checkpoint_name
from rl_online.models import UpdateRun, UpdateState

RANGES = {  # preset in the address -> (how far back, width of a bar)
    "15m": (timedelta(minutes=15), timedelta(minutes=1)),
    "1h": (timedelta(hours=1), timedelta(minutes=1)),
    "6h": (timedelta(hours=6), timedelta(minutes=5)),
    "1d": (timedelta(days=1), timedelta(minutes=20)),
    "7d": (timedelta(days=7), timedelta(hours=2)),
    "30d": (timedelta(days=30), timedelta(hours=12)),
}
DEFAULT_RANGE = "1h"
NUM_KINDS = 4  # drawn apart; rarer kinds are drawn together as "other"
OVER = [state for state in UpdateState.values if UpdateState(state).is_over]
ACTIVE = [state for state in UpdateState.values if state not in OVER]
MOVES = ("promote", "promote against the gate", "roll back")  # verbs of the audit trail that change what serves
EPOCH = datetime(2024, 1, 1, tzinfo=timezone.get_fixed_timezone(0))


@dataclass(frozen=True, kw_only=True, slots=True)
class SignalRates:
    """Counts a bucket for every kind; `times` are the buckets' starts, without gaps."""

    times: list[datetime]
    counts: dict[str, list[int]]
    bucket: timedelta

    @property
    def total(self) -> int:
        return sum(map(sum, self.counts.values()))

    @property
    def bucket_minutes(self) -> float:
        return self.bucket.total_seconds() / 60


def signal_rates(preset: str, now: datetime) -> SignalRates:
    reach, bucket = RANGES[preset]
    start = EPOCH + ((now - reach - EPOCH) // bucket + 1) * bucket
    rows = (
        UserSignal.objects.filter(at__gte=start, at__lte=now)
        .annotate(bucket=Func(Value(bucket), F("at"), Value(EPOCH), function="date_bin", output_field=DateTimeField()))
        .values_list("bucket", "kind")
        .annotate(n=Count("id"))
    )
    counts: dict[str, dict[datetime, int]] = {}
    for at, kind, n in rows:
        counts.setdefault(kind, {})[at] = n
    if not counts:
        return SignalRates(times=[], counts={}, bucket=bucket)
    first = min(at for by_time in counts.values() for at in by_time)
    times = [first + i * bucket for i in range((now - first) // bucket + 1)]
    ranked = sorted(counts, key=lambda kind: -sum(counts[kind].values()))
    series = {kind: [counts[kind].get(at, 0) for at in times] for kind in ranked[:NUM_KINDS]}
    if rest := ranked[NUM_KINDS:]:
        series["other"] = [sum(counts[kind].get(at, 0) for kind in rest) for at in times]
    return SignalRates(times=times, counts=series, bucket=bucket)


def accept_shares(policy: Policy, *, last: int = 12) -> dict[int, AcceptShare]:
    """Version -> accept share among real users, for the newest `last` versions that have settled turns."""
    found: dict[int, AcceptShare] = {}
    for group in accept_share(by="checkpoint", source="production"):
        name, version = parse_checkpoint_name(group.key or "")
        if name == policy.name:
            found[version] = group
    return {version: found[version] for version in sorted(found)[-last:]}


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


def moves(since: datetime) -> list[AuditEvent]:
    """Promotions and rollbacks, for the marks across time charts."""
    return list(AuditEvent.objects.filter(verb__in=MOVES, at__gte=since).order_by("at"))
