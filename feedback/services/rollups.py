"""Keep the hourly counts equal to the rows they count.

Triggers mark an hour dirty in the transaction that changes one of its turns or signals. A job counts dirty hours anew
from their rows and removes the marks it saw, in one transaction: killed in between, the marks are there again; a write
committed meanwhile has left a mark of its own. Counters of one project take turns, so an older count never overwrites
a newer one. Doing it again changes nothing.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.utils import timezone

from feedback.models import DirtyHour
from feedback.rollups import HOUR, hour_of, runs_of, whole_hours
from feedback.services.counting import COUNTS
from jobs import crash
from jobs.models import Job, JobState
from jobs.services import ClaimedJob, enqueue
from registry.services import all_projects
from registry.tenancy import tenant

ROLLUP_JOB = "feedback.rollup"
HOURS_AT_ONCE = 48  # a transaction
REST = 4  # times as long as counting took, so that a busy hour costs a worker a fifth of its time at most
REST_FROM_S = 0.5  # quicker counts need no rest


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A stored row that counting the hour anew does not give, or the other way round."""

    table: str
    is_stored: bool
    row: tuple[Any, ...]


def handle_rollup(job: ClaimedJob) -> None:
    """Job `feedback.rollup`: some hours of the project are dirty."""
    assert job.project_id is not None
    started = time.monotonic()
    with job.effect(), tenant(job.project_id):
        count_dirty(job.project_id)
        crash.point("task.feedback.rollup.mid")
        took_s = time.monotonic() - started
        if DirtyHour.objects.exists():
            rest = timedelta(seconds=REST * took_s if took_s > REST_FROM_S else 0)
            enqueue(ROLLUP_JOB, project_id=job.project_id, key=str(job.project_id), run_at=timezone.now() + rest)


def ask_for_rollups() -> None:
    """A job for every project that has dirty hours and no job that waits or rests."""
    for project in all_projects():
        with tenant(project.id):
            if not DirtyHour.objects.exists():
                continue
            queued = Job.objects.filter(kind=ROLLUP_JOB, key=str(project.id), state=JobState.QUEUED)
            if not queued.exists():
                enqueue(ROLLUP_JOB, project_id=project.id, key=str(project.id))


def count_dirty(project_id: UUID, *, at_most: int = HOURS_AT_ONCE) -> int:
    """Count the newest dirty hours anew; returns how many. Inside a tenant."""
    _wait_for_turn(project_id)
    newest = DirtyHour.objects.order_by("-hour").values_list("hour", flat=True).distinct()
    hours = list(newest[:at_most])
    _count(project_id, hours)
    return len(hours)


def count_all_dirty(project_id: UUID) -> None:
    """Count until nothing is dirty: for tests, demos and whoever has no worker."""
    while count_dirty(project_id):
        pass


def rebuild(project_id: UUID, *, since: datetime | None = None, until: datetime | None = None) -> int:
    """Count every hour of [since, until) anew, dirty or not, each day in a transaction of its own; returns how many.

    Bounds are widened to whole hours; without them, everything there is.
    """
    with tenant(project_id):
        start, end = _reach(since, until)
    done = 0
    while start < end:
        hours = [start + place * HOUR for place in range(min(24, (end - start) // HOUR))]
        with tenant(project_id):
            _wait_for_turn(project_id)
            _count(project_id, hours)
        done += len(hours)
        start += len(hours) * HOUR
    return done


def differences(project_id: UUID, *, since: datetime | None = None, until: datetime | None = None) -> list[Difference]:
    """Where the stored counts differ from a count of the rows as they are now; empty unless something is dirty."""
    found: list[Difference] = []
    with tenant(project_id):
        start, end = _reach(since, until)
        values = {"project": project_id, "start": start, "end": end}
        _wait_for_turn(project_id)
        with connection.cursor() as cursor:
            for table, (columns, count) in COUNTS.items():
                stored = _STORED.format(table=table, columns=columns)
                for is_stored, query in (
                    (True, f"({stored}) EXCEPT ({count})"),
                    (False, f"({count}) EXCEPT ({stored})"),
                ):
                    cursor.execute(query, values)
                    found += [Difference(table=table, is_stored=is_stored, row=row[1:]) for row in cursor.fetchall()]
    return found


def _wait_for_turn(project_id: UUID) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"rollups:{project_id}"])


def _count(project_id: UUID, hours: Sequence[datetime]) -> None:
    """Remove the marks first: what is committed after this statement saw them keeps a mark of its own."""
    with connection.cursor() as cursor:
        for start, end in runs_of(hours):
            values = {"project": project_id, "start": start, "end": end}
            cursor.execute(_FORGET.format(table="feedback_dirtyhour"), values)
            for table, (columns, count) in COUNTS.items():
                cursor.execute(_FORGET.format(table=table), values)
                cursor.execute(f"INSERT INTO {table} (project_id, {columns}) {count}", values)


def _reach(since: datetime | None, until: datetime | None) -> tuple[datetime, datetime]:
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT min(moment), max(moment) FROM (
              SELECT min(at) AS moment FROM feedback_turn UNION ALL SELECT max(at) FROM feedback_turn
              UNION ALL SELECT min(at) FROM feedback_usersignal UNION ALL SELECT max(at) FROM feedback_usersignal
              UNION ALL SELECT min(hour) FROM feedback_turnrollup UNION ALL SELECT max(hour) FROM feedback_turnrollup
              UNION ALL SELECT min(hour) FROM feedback_signalrollup
              UNION ALL SELECT max(hour) FROM feedback_signalrollup
              UNION ALL SELECT min(hour) FROM feedback_dirtyhour UNION ALL SELECT max(hour) FROM feedback_dirtyhour
            ) bounds
            """
        )
        first, last = cursor.fetchone()
    newest = hour_of(last) + HOUR if last else None
    start, end = since or first or until, until or newest or since
    if start is None or end is None:
        return hour_of(timezone.now()), hour_of(timezone.now())  # nothing is there
    return whole_hours(start, max(start, end))


_WITHIN = "project_id = %(project)s AND hour >= %(start)s AND hour < %(end)s"
_FORGET = "DELETE FROM {table} WHERE " + _WITHIN  # noqa: S608 - literals
_STORED = "SELECT project_id, {columns} FROM {table} WHERE " + _WITHIN  # noqa: S608 - literals
