"""Reads over turns and signals of the current tenant: accept shares, what was received, what still waits."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from django.db.models import Count, Q, QuerySet, Sum
from django.db.models.functions import TruncMinute

from feedback.intervals import Cluster, share_bounds
from feedback.models import Outcome, OutcomeCount, Turn, UserSignal
from registry.errors import InvalidInput

MANY = 10_000  # what only waits is counted up to here
By = Literal["checkpoint", "model", "user", "surface"]
_COLUMNS = {"checkpoint": ("policy", "version"), "model": ("model",), "user": ("user",), "surface": ("surface",)}


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceptShare:
    """Settled turns with outcome accept over settled turns shown, for one checkpoint, model, user or surface."""

    key: str | None  # None: turns without a user or surface
    turns: int
    accepted: int
    share: float
    low: float
    high: float
    interval: str  # wilson, or wilson_clustered where a user has several turns


def accept_share(
    *, by: By = "checkpoint", source: str | None = None, since: datetime | None = None, until: datetime | None = None
) -> list[AcceptShare]:
    """One group for each key that has settled turns, in order of key, versions by number.

    Turns of an external model have no checkpoint and the other way round; grouping by one leaves out the other.
    """
    if by not in _COLUMNS:
        raise InvalidInput(f"found {by!r}; choose from {', '.join(get_args(By))}", field="by")
    columns = _COLUMNS[by]
    turns = _within(Turn.objects.filter(settled_at__isnull=False, is_shown=True), since, until)
    if source is not None:
        turns = turns.filter(source=source)
    if by in ("checkpoint", "model"):
        turns = turns.filter(**{f"{columns[-1]}__isnull": False})
    rows = turns.values_list(*dict.fromkeys([*columns, "user"])).annotate(
        n=Count("id"), accepted=Count("id", filter=Q(outcome=Outcome.ACCEPT))
    )
    groups: dict[tuple[Any, ...], list[Cluster]] = defaultdict(list)
    for *values, number, accepted in rows:
        cluster = Cluster(turns=number, accepted=accepted, is_one_user=values[-1] is not None)
        groups[tuple(values[: len(columns)])].append(cluster)
    ordered = sorted(groups, key=lambda key: tuple((part is not None, part) for part in key))
    return [_accept_share(_name(key), groups[key]) for key in ordered]


def _name(key: tuple[Any, ...]) -> str | None:
    return f"{key[0]}@{key[1]}" if len(key) == 2 else key[0]


def _accept_share(key: str | None, clusters: list[Cluster]) -> AcceptShare:
    turns = sum(cluster.turns for cluster in clusters)
    accepted = sum(cluster.accepted for cluster in clusters)
    bounds = share_bounds(clusters)
    return AcceptShare(
        key=key,
        turns=turns,
        accepted=accepted,
        share=accepted / turns,
        low=bounds.low,
        high=bounds.high,
        interval=bounds.interval,
    )


def signals_per_minute(*, since: datetime, until: datetime) -> list[tuple[datetime, str, int]]:
    """(minute, kind, number of signals), minutes without signals left out."""
    signals = UserSignal.objects.filter(at__gte=since, at__lt=until).annotate(minute=TruncMinute("at"))
    rows = signals.values_list("minute", "kind").annotate(n=Count("id"))
    return list(rows.order_by("minute", "kind"))


def ingestion_outcomes(*, since: datetime) -> dict[str, int]:
    """How many items ended in which outcome since that hour, `request:<status>` for requests refused whole."""
    rows = OutcomeCount.objects.filter(hour__gte=since).values_list("outcome").annotate(n=Sum("count"))
    return dict(rows.order_by("outcome"))


def num_orphans(*, at_most: int = MANY) -> int:
    """Signals that wait for their turn, counted up to `at_most`."""
    waiting = UserSignal.objects.filter(turn=None, turn_ref__isnull=False, expired_at=None)
    return waiting.values("pk")[:at_most].count()


def _within(turns: QuerySet[Turn], since: datetime | None, until: datetime | None) -> QuerySet[Turn]:
    if since is not None:
        turns = turns.filter(at__gte=since)
    return turns if until is None else turns.filter(at__lt=until)
