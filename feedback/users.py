"""What each user did with the answers of some versions: the unit of a live experiment. Inside a tenant."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Avg, Case, Count, Exists, F, FloatField, OuterRef, Q, Value, When
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
    num_abandoned: int
    output_tokens: float | None  # mean over the turns that tell it
    latency_ms: float | None
    bad_call_share: float | None  # these three of the turns of which is known what they do (`feedback.conduct`)
    asks_back_share: float | None
    without_edit_share: float | None

    @property
    def accept_share(self) -> float | None:
        return self.num_accepted / self.num_settled if self.num_settled else None


def arms_of_users(policy: str, versions: Collection[int], *, since: datetime, until: datetime) -> list[UserArm]:
    """A row for each user and version, by turns in [since, until)."""
    heard = UserSignal.objects.filter(turn=OuterRef("pk"))
    settled = Q(settled_at__isnull=False, is_shown=True)
    turns = Turn.objects.filter(policy=policy, version__in=versions, at__gte=since, at__lt=until, source__in=LIVE)
    rows = turns.annotate(
        who=_WHO, is_retried=Exists(heard.filter(kind="retry")), is_abandoned=Exists(heard.filter(kind="abandon"))
    ).values("who", "version")
    counted = rows.annotate(
        num_turns=Count("id"),
        num_settled=Count("id", filter=settled),
        num_accepted=Count("id", filter=settled & Q(outcome=Outcome.ACCEPT)),
        num_errors=Count("id", filter=Q(error__isnull=False)),
        num_retried=Count("id", filter=Q(is_retried=True)),
        num_abandoned=Count("id", filter=Q(is_abandoned=True)),
        bad_call=_share_of("has_bad_call"),
        asking=_share_of("asks_back"),
        without_edit=_share_of("is_without_edit"),
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
            num_abandoned=row["num_abandoned"],
            output_tokens=row["output"],
            latency_ms=row["latency"],
            bad_call_share=row["bad_call"],
            asks_back_share=row["asking"],
            without_edit_share=row["without_edit"],
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


def _share_of(fact: str) -> Avg:
    """Of the turns that know the fact; None where none does."""
    return Avg(Case(When(**{fact: True}, then=1.0), When(**{fact: False}, then=0.0), output_field=FloatField()))


_WHO = Coalesce(F("user"), Concat(Value("session "), F("session__session_id")))
