"""Walking through rows in an order that new rows do not shift: the next page starts after the last row seen."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from registry.errors import InvalidInput

Key = datetime | float


@dataclass(frozen=True, kw_only=True, slots=True)
class Cursor:
    """A row's place: the value that orders it, and its id among rows of the same value."""

    at: Key
    id: int | UUID

    @classmethod
    def parse(cls, text: str, order: "Order") -> "Cursor | None":
        """None for empty. Raises InvalidInput for what is no place in this order."""
        if not text:
            return None
        try:
            value, _, number = text.rpartition("~")
            found = cls(at=order.key(value), id=UUID(number) if "-" in number else int(number))
            if isinstance(found.id, int) and not 0 <= found.id < 2**63:
                raise ValueError
        except (ValueError, OverflowError):
            raise InvalidInput(f"{text[:60]!r} is no place in this list; open it anew", field="before") from None
        return found

    def __str__(self) -> str:
        return f"{self.at.isoformat() if isinstance(self.at, datetime) else repr(self.at)}~{self.id}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """By one column and then by id. Rows where the column is unknown have no place in it."""

    path: str  # ORM path on the row itself
    is_descending: bool = True
    is_time: bool = True  # else a number

    def key(self, text: str) -> Key:
        """Raises ValueError."""
        if not self.is_time:
            value = float(text)
            if value - value != 0:  # NaN and the infinities order nothing
                raise ValueError
            return value
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            raise ValueError
        return at

    def columns(self, *, is_backward: bool = False) -> tuple[str, str]:
        sign = "-" if self.is_descending is not is_backward else ""
        return f"{sign}{self.path}", f"{sign}id"

    def beyond(self, place: Cursor, *, is_backward: bool = False) -> Q:
        # The first condition alone lets PostgreSQL start in an index at the right value.
        side = "lt" if self.is_descending is not is_backward else "gt"
        value, at = self.path, place.at
        return Q(**{f"{value}__{side}e": at}) & (Q(**{f"{value}__{side}": at}) | Q(**{f"id__{side}": place.id}))

    def place_of(self, row: Any) -> Cursor:
        value = getattr(row, self.path)
        return Cursor(at=value if self.is_time else float(value), id=row.pk)

    def rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Those that have a place."""
        return rows if self.is_time else rows.filter(**{f"{self.path}__isnull": False})


def keyset_chunk(
    rows: QuerySet[Any], place: Cursor | None, size: int, *, at: str = "at"
) -> tuple[list[Any], Cursor | None]:
    """The next `size` rows after a place, newest first, and the place after them; None when they are the last."""
    return _chunk(rows, Order(path=at), place, size)


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """How far a walk through all rows has come: by an order, and after that through those it does not know."""

    after: Cursor | None  # the last row seen; None: none of this part yet
    is_unordered: bool = False  # in the second part


def ordered_chunk(
    rows: QuerySet[Any], place: Place | None, size: int, *, order: Order | None, at: str = "at"
) -> tuple[list[Any], Place | None]:
    """As `keyset_chunk` by an order. No row is left out: those without its column come last, newest first."""
    place, newest = place or Place(after=None), Order(path=at)
    if order is None or order.is_time:
        found, after = _chunk(rows, order or newest, place.after, size)
        return found, Place(after=after) if after else None
    if place.is_unordered:
        unknown = rows.filter(**{f"{order.path}__isnull": True})
        found, after = _chunk(unknown, newest, place.after, size)
        return found, Place(after=after, is_unordered=True) if after else None
    found, after = _chunk(order.rows(rows), order, place.after, size)
    return found, Place(after=after, is_unordered=after is None)


def _chunk(rows: QuerySet[Any], order: Order, after: Cursor | None, size: int) -> tuple[list[Any], Cursor | None]:
    found = list((rows.filter(order.beyond(after)) if after else rows).order_by(*order.columns())[: size + 1])
    return found[:size], order.place_of(found[size - 1]) if len(found) > size else None
