"""What each user did with the answers of some versions: the unit of a live experiment. Inside a tenant."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Avg, Count, Exists, F, OuterRef, Q, Value
from django.db.models.functions import Coalesce, Concat

from feedback.models import Outcome, Turn, UserSignal

LIVE = ("production", "simulated")  # sources that are users; not the gate's own questions, nor imports


@dataclass(frozen=True, kw_only=True, slots=True)
class UserArm:
    """One user's turns with one version. A turn without a user belongs to its session, as when it was routed."""

    who: str
    version: int
    num_turns: int
    num_settled: int  # shown, and with a label
    num_accepted: int
    num_errors: int
    num_retried: int
    output_tokens: float | None  # mean over the turns that tell it
    latency_ms: float | None

    @property
    def accept_share(self) -> float | None:
        return self.num_accepted / self.num_settled if self.num_settled else None


def arms_of_users(policy: str, versions: Collection[int], *, since: datetime, until: datetime) -> list[UserArm]:
    """A row for each user and version, by turns in [since, until)."""
    retried = UserSignal.objects.filter(turn=OuterRef("pk"), kind="retry")
    settled = Q(settled_at__isnull=False, is_shown=True)
    turns = Turn.objects.filter(policy=policy, version__in=versions, at__gte=since, at__lt=until, source__in=LIVE)
    rows = turns.annotate(who=_WHO, is_retried=Exists(retried)).values("who", "version")
    counted = rows.annotate(
        num_turns=Count("id"),
        num_settled=Count("id", filter=settled),
        num_accepted=Count("id", filter=settled & Q(outcome=Outcome.ACCEPT)),
        num_errors=Count("id", filter=Q(error__isnull=False)),
        num_retried=Count("id", filter=Q(is_retried=True)),
        output=Avg("output_tokens"),
        latency=Avg("latency_ms"),
    ).order_by("who", "version")
    return [
        UserArm(
            who=row["who"],
            version=row["version"],
            num_turns=row["num_turns"],
            num_settled=row["num_settled"],
            num_accepted=row["num_accepted"],
            num_errors=row["num_errors"],
            num_retried=row["num_retried"],
            output_tokens=row["output"],
            latency_ms=row["latency"],
        )
        for row in counted
    ]


def accept_share_by_user(policy: str, *, since: datetime, until: datetime) -> dict[str, float]:
    """The share each user accepted of what any version answered in [since, until); who settled nothing is left out."""
    turns = Turn.objects.filter(
        policy=policy, at__gte=since, at__lt=until, source__in=LIVE, settled_at__isnull=False, is_shown=True
    )
    rows = turns.annotate(who=_WHO).values_list("who")
    counted = rows.annotate(n=Count("id"), accepted=Count("id", filter=Q(outcome=Outcome.ACCEPT)))
    return {who: accepted / n for who, n, accepted in counted}


_WHO = Coalesce(F("user"), Concat(Value("session "), F("session__session_id")))
