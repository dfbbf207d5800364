"""Votes for the win-rate pages: one judge version, people, or what was imported; kept apart. Inside a tenant.

What was made here is bounded by time and number; of what was imported a worker has left the numbers.

People are those who compared two answers in a review, and users who preferred one turn to another (the signal
`preference`, sent about the turn that won and naming the one it beat).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Count

from evals.judge_evidence import BY_JUDGE
from evals.models import Comparison, ComparisonSet, ImportedStandings, JudgeVersion, RaterAgreement, RunState
from evals.rater_agreement import Agreed
from evals.services.imported_standings import STANDINGS_JOB, Measured, agreed_of, measured_of
from evals.standings import MAX_VOTES, Vote, votes_of_people
from feedback.models import SignalRollup, Turn, UserSignal
from feedback.rollups import whole_hours
from jobs.models import Job, JobState
from registry.tenancy import current_project_id

PREFERENCE = "preference"
MAX_JUDGES = 50
MAX_CHOICES = 200  # imported judges and files to choose from, the newest
MAX_FILES = 20  # of one imported judge that are named


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
        votes=tuple(sorted((*reviews, *preferences), key=lambda vote: vote.at or since)),
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
        .values_list("turn__turn_id", "text", "user", "at")[:MAX_VOTES]
    )
    origins = _origins([name for won, beaten, *_ in rows for name in (won, beaten) if name])
    votes = [
        Vote(left=left, right=right, result=1.0, cluster=("user", user) if user else None, at=at)
        for won, beaten, user, at in rows
        if (left := origins.get(won)) and (right := origins.get(beaten or "")) and left != right
    ]
    return votes, len(rows) - len(votes)


def _origins(turn_ids: Iterable[str]) -> dict[str, str]:
    """Turn -> checkpoint or model; turns of unknown origin are left out."""
    rows = Turn.objects.filter(turn_id__in=set(turn_ids)).values_list("turn_id", "policy", "version", "model")
    named = {turn: f"{policy}@{version}" if version is not None else model for turn, policy, version, model in rows}
    return {turn: name for turn, name in named.items() if name}


# --- imported ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """One judge over its files, or the people or tests of one file, as a worker left it."""

    row: ImportedStandings
    measured: Measured
    files: list[ComparisonSet]  # newest first, at most MAX_FILES
    agreements: list[tuple[RaterAgreement, Agreed]]  # of all raters on the benchmark
    is_pending: bool  # a worker is to compute it anew

    @property
    def came_in(self) -> tuple[datetime, datetime]:
        """From the first file's beginning to the last one's end."""
        return min(one.started_at for one in self.files), max(one.finished_at or one.started_at for one in self.files)


def imported_choices() -> list[ImportedStandings]:
    """The newest first, without their numbers."""
    rows = ImportedStandings.objects.select_related("benchmark", "set").defer("result", "set__claims", "set__notes")
    return list(rows.order_by("-newest", "by", "rater")[:MAX_CHOICES])


def chosen_of(choices: list[ImportedStandings], *, source: str, set: str) -> ImportedStandings | None:
    """By its own number, by one of its files, or the first."""
    by_file = ComparisonSet.objects.filter(pk=set).first() if _is_uuid(set) else None
    if by_file is not None:
        near = [one for one in choices if one.benchmark_id == by_file.benchmark_id]
        return next((one for one in near if one.set_id == by_file.pk), next(iter(near), None))
    return next((one for one in choices if str(one.pk) == source), choices[0] if choices else None)


def imported(row: ImportedStandings) -> Imported:
    measured = measured_of(row)
    files = ComparisonSet.objects.filter(pk__in=measured.sets).order_by("-started_at")[:MAX_FILES]
    agreements = RaterAgreement.objects.filter(benchmark=row.benchmark_id).order_by("first", "second")
    return Imported(
        row=row,
        measured=measured,
        files=list(files),
        agreements=[(one, agreed_of(one)) for one in agreements],
        is_pending=is_computing(row.benchmark_id),
    )


def is_computing(benchmark: int | None = None) -> bool:
    """Whether a worker is at the imported comparisons of this benchmark, or of any."""
    jobs = Job.objects.filter(
        project_id=current_project_id(), kind=STANDINGS_JOB, state__in=(JobState.QUEUED, JobState.RUNNING)
    )
    return (jobs if benchmark is None else jobs.filter(key=str(benchmark))).exists()


def num_imported_files() -> int:
    return ComparisonSet.objects.filter(state=RunState.DONE).count()


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
