"""Votes for the win-rate pages: one judge version, or people; kept apart. Inside a tenant; bounded by time.

People are those who compared two answers in a review, and users who preferred one turn to another (the signal
`preference`, sent about the turn that won and naming the one it beat).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count

from evals.judge_evidence import BY_JUDGE
from evals.models import Comparison, ComparisonSet, ImportedStandings, JudgeVersion, RaterAgreement, RunState
from evals.rater_agreement import Agreed
from evals.services.imported_standings import STANDINGS_JOB, Measured, agreed_of, measured_of
from evals.standings import MAX_VOTES, Vote, votes_of_people
from feedback.models import SignalRollup, Turn, UserSignal
from feedback.rollups import whole_hours

PREFERENCE = "preference"
MAX_JUDGES = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgeChoice:
    judge: JudgeVersion
    num_votes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PeopleVotes:
    votes: tuple[Vote, ...]
    num_reviews: int
    num_preferences: int
    num_lost: int  # preferences whose other turn is not here, or whose two turns have one origin


def judges(*, since: datetime, until: datetime) -> list[JudgeChoice]:
    """Versions that judged in this time, those with most votes first. Two queries."""
    judged = Comparison.objects.filter(by=BY_JUDGE, created_at__gte=since, created_at__lt=until)
    counts = dict(judged.values_list("judge_id").annotate(n=Count("id")).order_by("-n", "judge_id")[:MAX_JUDGES])
    found = JudgeVersion.objects.in_bulk([judge_id for judge_id in counts if judge_id is not None])
    return [
        JudgeChoice(judge=found[judge_id], num_votes=n)
        for judge_id, n in counts.items()
        if judge_id is not None and judge_id in found
    ]


def people(*, since: datetime, until: datetime) -> PeopleVotes:
    reviews = votes_of_people(since=since, until=until)
    preferences, num_lost = _preferences(since, until)
    return PeopleVotes(
        votes=(*reviews, *preferences),
        num_reviews=len(reviews),
        num_preferences=len(preferences),
        num_lost=num_lost,
    )


def _preferences(since: datetime, until: datetime) -> tuple[list[Vote], int]:
    """The hourly counts tell first whether there is any: looking for none among all signals would read them all."""
    start, end = whole_hours(since, until)
    if not SignalRollup.objects.filter(hour__gte=start, hour__lt=end, kind=PREFERENCE).exists():
        return [], 0
    rows = list(
        UserSignal.objects.filter(kind=PREFERENCE, at__gte=since, at__lt=until, turn__isnull=False)
        .order_by("-at", "-id")
        .values_list("turn__turn_id", "text", "user")[:MAX_VOTES]
    )
    origins = _origins([name for won, beaten, _ in rows for name in (won, beaten) if name])
    votes = [
        Vote(left=left, right=right, result=1.0, cluster=("user", user) if user else None)
        for won, beaten, user in rows
        if (left := origins.get(won)) and (right := origins.get(beaten or "")) and left != right
    ]
    return votes, len(rows) - len(votes)


def _origins(turn_ids: Iterable[str]) -> dict[str, str]:
    """Turn -> checkpoint or model; turns of unknown origin are left out."""
    rows = Turn.objects.filter(turn_id__in=set(turn_ids)).values_list("turn_id", "policy", "version", "model")
    named = {turn: f"{policy}@{version}" if version is not None else model for turn, policy, version, model in rows}
    return {turn: name for turn, name in named.items() if name}
