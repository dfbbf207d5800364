"""Counts of what became of every received item, by hour; their sum is what was received."""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from django.db import connection


def count(project_id: UUID, at: datetime, outcomes: Mapping[str, int]) -> None:
    """Add to the counts of the hour of `at`. Call it last in a transaction: the rows are shared by all writers."""
    if not outcomes:
        return
    hour = hour_of(at)
    names = sorted(outcomes)
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO feedback_outcomecount (project_id, hour, outcome, count)
            SELECT %s, %s, given.outcome, given.count FROM unnest(%s::text[], %s::bigint[]) AS given(outcome, count)
            ORDER BY given.outcome
            ON CONFLICT (project_id, hour, outcome) DO UPDATE SET count = feedback_outcomecount.count + excluded.count
            """,
            [project_id, hour, names, [outcomes[name] for name in names]],
        )


def move(project_id: UUID, hour: datetime, old: str, new: str, number: int) -> None:
    """Some items of this hour ended in another outcome after all; the sum stays."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE feedback_outcomecount SET count = count - %s WHERE project_id = %s AND hour = %s AND outcome = %s",
            [number, project_id, hour, old],
        )
    count(project_id, hour, {new: number})


def hour_of(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)


def count_refused(project_id: UUID, at: datetime, status: int) -> None:
    """A request refused whole, counted apart from items."""
    count(project_id, at, {f"request:{status}": 1})
