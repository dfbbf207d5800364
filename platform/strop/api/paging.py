"""Lists of the API: bounded by time, newest first, walked by a cursor that new rows do not shift."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from django.db.models import Q, QuerySet
from django.utils import timezone
from ninja import Field, Schema

from console.keyset import Cursor, Order, keyset_chunk
from registry.errors import InvalidInput

MAX_LIMIT = 200
DEFAULT_SPAN = timedelta(days=7)
MAX_SPAN = timedelta(days=400)
FIRST_YEAR, LAST_YEAR = 1970, 2999  # far enough from the ends of the calendar to reckon with
T = TypeVar("T")


class Page(Schema, Generic[T]):
    items: list[T]
    next: str | None = Field(description="`cursor` of the following page; null on the last one")


class Asked(Schema):
    """Which part of a list."""

    since: datetime | None = Field(None, description="first moment, RFC 3339; default 7 days before `until`")
    until: datetime | None = Field(None, description="first moment after the last; default now")
    limit: int = Field(50, ge=1, le=MAX_LIMIT)
    cursor: str = Field("", max_length=200, description="`next` of the page before")

    def within(self, column: str) -> Q:
        """What moves with the clock also takes what is dated a little ahead of it. Raises InvalidInput."""
        since, until = span_of(self.since, self.until)
        found = Q(**{f"{column}__gte": since})
        return found if self.until is None else found & Q(**{f"{column}__lt": until})


def span_of(since: datetime | None, until: datetime | None) -> tuple[datetime, datetime]:
    """Both ends, filled in. Raises InvalidInput for a time without a zone or far off, an empty and too long a span."""
    for name, at in (("since", since), ("until", until)):
        if at is not None and at.tzinfo is None:
            raise InvalidInput("write the time with its zone, e.g. 2026-11-30T06:00:00Z", field=name)
        if at is not None and not FIRST_YEAR <= at.year <= LAST_YEAR:
            raise InvalidInput(f"give a year from {FIRST_YEAR} to {LAST_YEAR}", field=name)
    until = until or timezone.now()
    since = since or until - DEFAULT_SPAN
    if not timedelta(0) < until - since <= MAX_SPAN:
        raise InvalidInput(f"lies not before until, or more than {MAX_SPAN.days} days before it", field="since")
    return since, until


def page_of(
    rows: QuerySet[Any],
    asked: Asked,
    *,
    at: str,
    show: Callable[[Any], Any],
    wrap: Callable[[list[Any]], Iterable[Any]] = list,
) -> dict[str, Any]:
    """One page of `rows` by their time `at`; `wrap` adds what the whole page needs to its rows."""
    place = Cursor.parse(asked.cursor, Order(path=at)) if asked.cursor else None
    found, following = keyset_chunk(rows.filter(asked.within(at)), place, asked.limit, at=at)
    return {"items": [show(row) for row in wrap(found)], "next": None if following is None else str(following)}
