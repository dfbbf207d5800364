"""What each key was last refused, so that a team sees what its client does wrong: one row for each key and outcome.

Not here: how many items ended how (feedback.services.outcomes counts every one of them).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection

MAX_MESSAGE = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """One item that was not stored, or a whole request."""

    outcome: str
    message: str
    field: str | None = None
    item_id: str | None = None


def note_refusals(project_id: UUID, key: str, refused: Iterable[Refused], *, at: datetime) -> None:
    """Keep the newest of each outcome and add to its count; does nothing when all went well."""
    newest: dict[str, Refused] = {}
    counts: dict[str, int] = {}
    for one in refused:
        newest[one.outcome] = one
        counts[one.outcome] = counts.get(one.outcome, 0) + 1
    if not newest:
        return
    names = sorted(newest)
    rows = [newest[name] for name in names]
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO feedback_lastrefusal
              (project_id, key, outcome, field, message, item_id, count, first_at, last_at)
            SELECT %s, %s, given.outcome, given.field, given.message, given.item, given.count, %s, %s
            FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[])
              AS given(outcome, field, message, item, count) ORDER BY given.outcome
            ON CONFLICT (project_id, key, outcome) DO UPDATE SET
              field = excluded.field, message = excluded.message, item_id = excluded.item_id,
              count = feedback_lastrefusal.count + excluded.count, last_at = excluded.last_at
            """,
            [
                project_id, key, at, at, names,
                [_storable(one.field or "", 200) for one in rows],
                [_storable(one.message, MAX_MESSAGE) for one in rows],
                [None if one.item_id is None else _storable(one.item_id, 128) for one in rows],
                [counts[name] for name in names],
            ],
        )  # fmt: skip


def _storable(text: str, length: int) -> str:
    """PostgreSQL takes no NUL and no half of a surrogate pair, and messages may quote what was sent."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()[:length]
