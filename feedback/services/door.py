"""What the door of a project asks before it takes anything: how old items may be, and whether old work waits too long.

Better a client that keeps its items than a queue nobody drains. Looked up once a second per process, not per request.
"""

import time
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.db import connection

from registry.errors import NotFound, RateLimited
from registry.models import Project
from registry.services import project_settings
from registry.tenancy import tenant

MAX_WAIT_S = 300.0  # of the oldest label job that is due
RETRY_AFTER_S = 30
LOOK_EVERY_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    looked_at: float  # monotonic
    max_age: timedelta  # of items, imports excepted
    decision_window: timedelta
    label_wait_s: float


_looks: dict[UUID, Look] = {}


def pass_through(project_id: UUID) -> timedelta:
    """The age limit of items.

    Raises RateLimited while this project's labelling is more than five minutes behind, NotFound without such a project.
    """
    look = look_at(project_id)
    if look.label_wait_s > MAX_WAIT_S:
        raise RateLimited(
            f"labelling is {look.label_wait_s:.0f} s behind; send again later", retry_after_s=RETRY_AFTER_S
        )
    return look.max_age


def look_at(project_id: UUID) -> Look:
    """What was seen within the last second. Raises NotFound without such a project."""
    look = _looks.get(project_id)
    if look is None or time.monotonic() - look.looked_at >= LOOK_EVERY_S:
        look = _looks[project_id] = _look(project_id)
    return look


def forget() -> None:
    """Look again at the next request."""
    _looks.clear()


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


def _look(project_id: UUID) -> Look:
    with tenant(project_id):
        try:
            asked = project_settings(project_id)
        except Project.DoesNotExist:
            raise NotFound("no such project", field="x-strop-project") from None
        return Look(
            looked_at=time.monotonic(),
            max_age=timedelta(days=asked.horizon_days),
            decision_window=timedelta(seconds=asked.decision_window_s),
            label_wait_s=label_wait_s(project_id),
        )
