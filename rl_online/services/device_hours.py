"""How long of each hour an engine held its device, asked or not: what idle time is reckoned from. Inside a tenant."""

from datetime import datetime, timedelta

from django.db import connection
from django.utils import timezone

from feedback.rollups import HOUR, hour_of
from registry.tenancy import current_project_id

LONGEST_GAP = timedelta(seconds=60)  # an engine reports every 20 s; what a longer silence hid is not known


def record_held(engine: str, *, since: datetime | None, uptime_s: float | None) -> None:
    """Count the time from its last report (`since`; None: its first) to this one, but none from before it started."""
    now = timezone.now()
    held = min(now - since if since else LONGEST_GAP, LONGEST_GAP, timedelta(seconds=uptime_s or 0.0))
    start = now - held
    while start < now:
        end = min(now, hour_of(start) + HOUR)
        _add(engine, hour_of(start), round((end - start).total_seconds() * 1000))
        start = end


def _add(engine: str, hour: datetime, milliseconds: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO registry_devicerollup AS kept (project_id, engine, hour, held_ms) VALUES (%s, %s, %s, %s)
            ON CONFLICT (project_id, hour, engine)
            DO UPDATE SET held_ms = least(kept.held_ms + excluded.held_ms, 3600000)
            """,
            [current_project_id(), engine, hour, milliseconds],
        )
