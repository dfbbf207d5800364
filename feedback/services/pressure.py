"""Refuse new work while old work waits too long: better a client that keeps its items than a queue nobody drains."""

import time
from uuid import UUID

from django.db import connection

from registry.errors import RateLimited

MAX_WAIT_S = 300.0  # of the oldest label job that is due
RETRY_AFTER_S = 30
LOOK_EVERY_S = 1.0

_looked: dict[UUID, tuple[float, float]] = {}  # project: (monotonic time of the look, seconds waited then)


def check(project_id: UUID) -> None:
    """Raises RateLimited while this project's labelling is more than five minutes behind."""
    looked_at, waited_s = _looked.get(project_id, (-LOOK_EVERY_S, 0.0))
    if time.monotonic() - looked_at >= LOOK_EVERY_S:
        waited_s = label_wait_s(project_id)
        _looked[project_id] = (time.monotonic(), waited_s)
    if waited_s > MAX_WAIT_S:
        raise RateLimited(f"labelling is {waited_s:.0f} s behind; send again later", retry_after_s=RETRY_AFTER_S)


def label_wait_s(project_id: UUID) -> float:
    """How long the oldest due label job of this project has waited; 0 when none waits."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT coalesce(extract(epoch FROM clock_timestamp() - min(run_at)), 0) FROM jobs_job
            WHERE project_id = %s AND kind = 'feedback.label' AND state = 'queued' AND run_at <= clock_timestamp()
            """,
            [project_id],
        )
        return float(cursor.fetchone()[0])


def forget() -> None:
    """Look again at the next check."""
    _looked.clear()
