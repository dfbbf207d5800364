"""Is everything that was sent taken in: outcomes that add up, signals without their turn, lag, and work that waits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Count, DateTimeField, F, Func, Min, Q, Sum, Value
from django.utils import timezone

from feedback.hourly import EPOCH, Counts, Origin, Span
from feedback.models import LastRefusal, OutcomeCount, Turn, UserSignal
from feedback.rollups import HOUR
from feedback.selectors import MANY, num_orphans
from feedback.services.door import MAX_WAIT_S, label_wait_s
from jobs.models import Job, JobState
from registry.models import ApiKey
from registry.services import project_settings
from registry.tenancy import current_project_id

REQUEST = "request:"  # how outcomes of requests refused whole begin
MAX_ORPHANS = 50
MAX_QUARANTINED = 50
MAX_REFUSALS = 100
MAX_KEYS = 200
RECENT = 5000  # items whose lag is measured, the newest of the range
EARLY_S = 5.0  # a sender's clock may be this far ahead before it is worth a word, as the hourly counts have it


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcomes:
    """Items by outcome and bucket of time. What was received is the sum; requests refused whole are apart."""

    starts: list[datetime]  # of every bucket of the range, without gaps
    bucket: timedelta  # whole hours
    by_bucket: dict[str, list[int]]  # outcome -> items in each bucket
    items: dict[str, int]  # outcome -> items, the most frequent first
    requests: dict[str, int]  # HTTP status -> requests refused whole

    @property
    def period(self) -> str:
        """How long a bucket is: 1 hour, 12 hours, 1 day, 7 days."""
        days, hours = divmod(self.bucket // HOUR, 24)
        number, unit = (hours, "hour") if hours else (days, "day")
        return f"{number} {unit}{'' if number == 1 else 's'}"

    @property
    def received(self) -> int:
        return sum(self.items.values())

    @property
    def rows(self) -> list[tuple[datetime, list[int], int]]:
        """(start, items by outcome in the order of `items`, their sum), newest first, empty buckets left out."""
        counts = [[self.by_bucket[name][place] for name in self.items] for place in range(len(self.starts))]
        found = [(start, each, sum(each)) for start, each in zip(self.starts, counts, strict=True)]
        return [row for row in reversed(found) if row[2]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Orphans:
    """Signals that name a turn which is not here."""

    longest: list[UserSignal]  # those that wait longest
    waiting: int
    is_capped: bool  # there may be more than `waiting`
    oldest_at: datetime | None  # when the one that waits longest came
    patience: timedelta  # after so long one expires

    @property
    def rows(self) -> list[tuple[UserSignal, datetime]]:
        return [(signal, signal.received_at + self.patience) for signal in self.longest]


@dataclass(frozen=True, kw_only=True, slots=True)
class Warning_:
    """Something that was taken in and will disappoint later."""

    title: str
    n: int
    of: int
    meaning: str  # what it costs and what to send instead
    query: str = ""  # of the list of turns; empty: no such list


@dataclass(frozen=True, kw_only=True, slots=True)
class Lag:
    """Seconds between two moments, over the newest items of the range."""

    title: str
    meaning: str
    n: int
    median_s: float | None
    p95_s: float | None
    max_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """Jobs of one kind that are not done."""

    kind: str
    queued: int = 0
    running: int = 0
    quarantined: int = 0
    oldest_at: datetime | None = None  # when the longest waiting due one became due


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    kinds: list[Waiting]
    given_up: list[Job]  # the newest first
    label_wait_s: float
    refuses_after_s: float = MAX_WAIT_S  # beyond this wait the door answers 429


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyState:
    """One key and what it was last refused."""

    name: str
    key: ApiKey | None  # None: our own processes, or a key that is gone
    refusals: list[LastRefusal] = field(default_factory=list)


def outcomes(span: Span) -> Outcomes:
    """Of the whole hours of the span, in its buckets."""
    starts = span.starts
    place = {start: i for i, start in enumerate(starts)}
    by_bucket: dict[str, list[int]] = {}
    requests: dict[str, int] = {}
    start = Func(Value(span.bucket), F("hour"), Value(EPOCH), function="date_bin", output_field=DateTimeField())
    counts = OutcomeCount.objects.filter(hour__gte=span.start, hour__lt=span.end).annotate(start=start)
    for start, outcome, number in counts.values_list("start", "outcome").annotate(n=Sum("count")):
        if outcome.startswith(REQUEST):
            status = outcome.removeprefix(REQUEST)
            requests[status] = requests.get(status, 0) + number
        elif number:
            by_bucket.setdefault(outcome, [0] * len(starts))[place[start]] += number
    ordered = sorted(by_bucket, key=lambda name: (-sum(by_bucket[name]), name))
    return Outcomes(
        starts=starts,
        bucket=span.bucket,
        by_bucket={name: by_bucket[name] for name in ordered},
        items={name: sum(by_bucket[name]) for name in ordered},
        requests=dict(sorted(requests.items())),
    )


def orphans() -> Orphans:
    waiting = UserSignal.objects.filter(turn=None, turn_ref__isnull=False, expired_at=None)
    longest = list(waiting.order_by("received_at", "id")[:MAX_ORPHANS])
    num_waiting = num_orphans(at_most=MANY)
    return Orphans(
        longest=longest,
        waiting=num_waiting,
        is_capped=num_waiting == MANY,
        oldest_at=longest[0].received_at if longest else None,
        patience=timedelta(hours=project_settings(current_project_id()).orphan_hours),
    )


def warnings(by_origin: Mapping[Origin, Counts], turns_of_nobody: int) -> list[Warning_]:
    """Only those that occur among these turns."""
    every = sum(counts.turns for counts in by_origin.values())
    ours = sum(counts.turns for origin, counts in by_origin.items() if origin.version is not None)
    facts = {
        "unknown": by_origin[Origin()].turns if Origin() in by_origin else 0,
        "bare": sum(counts.without_logprobs for counts in by_origin.values()),
        "nobody": turns_of_nobody,
        "ahead": sum(counts.from_future for counts in by_origin.values()),
        "unmetered": every - sum(counts.with_usage for counts in by_origin.values()),
        "failed": sum(counts.errors for counts in by_origin.values()),
    }
    found = [
        Warning_(
            title="turns of unknown origin", n=facts["unknown"], of=every, query="-has:version -has:model",
            meaning="They are shown and never learned from. Send `checkpoint` or `model` with each turn.",
        ),
        Warning_(
            title="turns of our own weights without token ids or logprobs", n=facts["bare"], of=ours,
            query="has:version logprobs:no",
            meaning="No ratio loss can use them. Answer through the gateway, or send `completion_token_ids`, "
            "`logprobs` and `weight_versions`.",
        ),
        Warning_(
            title="turns without a user", n=facts["nobody"], of=every, query="-has:user",
            meaning="Each counts as a person of its own, so intervals look narrower than they are.",
        ),
        Warning_(
            title="turns from the future", n=facts["ahead"], of=every,
            meaning=f"Their `at` lies more than {EARLY_S:.0f} s after they arrived: the sender's clock is ahead.",
        ),
        Warning_(
            title="turns without usage", n=facts["unmetered"], of=every, query="usage:no",
            meaning="They cannot be priced: input or output tokens are missing. Send both in `usage` with each turn.",
        ),
        Warning_(
            title="turns that ended in an error", n=facts["failed"], of=every, query="has:error",
            meaning="They are never learned from.",
        ),
    ]  # fmt: skip
    return [one for one in found if one.n]


_LAGS = """
WITH turn AS (
  SELECT at, received_at, settled_at, settle_due, outcome, label_id FROM feedback_turn
  WHERE project_id = %(project)s AND at >= %(since)s AND at < %(until)s ORDER BY at DESC LIMIT %(recent)s),
signal AS (
  SELECT at, received_at FROM feedback_usersignal
  WHERE project_id = %(project)s AND at >= %(since)s AND at < %(until)s ORDER BY at DESC LIMIT %(recent)s),
lag AS (
  SELECT 'turn' AS name, received_at - at AS lag FROM turn
  UNION ALL SELECT 'signal', received_at - at FROM signal
  UNION ALL SELECT 'settle', settled_at - received_at FROM turn WHERE settled_at IS NOT NULL
  UNION ALL SELECT 'silence', settled_at - settle_due FROM turn WHERE outcome = 'silence' AND settled_at >= settle_due)
SELECT name, count(*), percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM lag)),
       percentile_cont(0.95) WITHIN GROUP (ORDER BY extract(epoch FROM lag)), max(extract(epoch FROM lag))
FROM lag GROUP BY name
"""
_LAG_WORDS = {
    "turn": ("Turns arrive", "from the sender's time to being stored"),
    "signal": ("Signals arrive", "from the sender's time to being stored"),
    "settle": ("Turns settle", "from being stored to the label; silence waits for the decision window"),
    "silence": ("Silence is noticed", "from the window's close to the label: how late the settling job is"),
}


def lags(since: datetime, until: datetime) -> list[Lag]:
    """Of each kind; one without items has no numbers."""
    values = {"project": current_project_id(), "since": since, "until": until, "recent": RECENT}
    with connection.cursor() as cursor:
        cursor.execute(_LAGS, values)
        found: dict[str, Sequence[Any]] = {row[0]: row[1:] for row in cursor.fetchall()}
    return [
        Lag(
            title=title,
            meaning=meaning,
            n=found[name][0] if name in found else 0,
            median_s=float(found[name][1]) if name in found else None,
            p95_s=float(found[name][2]) if name in found else None,
            max_s=float(found[name][3]) if name in found else None,
        )
        for name, (title, meaning) in _LAG_WORDS.items()
    ]


def work() -> Work:
    project = current_project_id()
    now = timezone.now()
    open_jobs = Job.objects.filter(project_id=project).exclude(state=JobState.DONE)
    rows = open_jobs.values("kind").annotate(
        queued=Count("id", filter=Q(state=JobState.QUEUED)),
        running=Count("id", filter=Q(state=JobState.RUNNING)),
        quarantined=Count("id", filter=Q(state=JobState.QUARANTINED)),
        oldest_at=Min("run_at", filter=Q(state=JobState.QUEUED, run_at__lte=now)),
    )
    return Work(
        kinds=[Waiting(**row) for row in rows.order_by("kind")],
        given_up=list(open_jobs.filter(state=JobState.QUARANTINED).order_by("-created_at")[:MAX_QUARANTINED]),
        label_wait_s=max(0.0, label_wait_s(project)),
    )


def keys() -> list[KeyState]:
    """Those that were refused something, the latest first, then the others by their last use."""
    known = {f"key:{key.prefix}": key for key in ApiKey.objects.order_by("-created_at")[:MAX_KEYS]}
    states: dict[str, KeyState] = {}
    for refusal in LastRefusal.objects.order_by("-last_at")[:MAX_REFUSALS]:
        state = states.get(refusal.key)
        if state is None:
            key = known.get(refusal.key)
            name = key.name if key else "our own processes" if refusal.key == "internal" else "a deleted key"
            state = states[refusal.key] = KeyState(name=name, key=key)
        state.refusals.append(refusal)
    return list(states.values())


def has_ever_received() -> bool:
    return OutcomeCount.objects.exists() or Turn.objects.exists()
