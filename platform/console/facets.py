"""The commonest values of a field beside a list, with how many of its newest rows have each.

A facet counts the rows that match everything asked for but its own field, so that the other values stay in sight; all
facets nobody has chosen from share one query.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import QuerySet

from console.listing import COUNT_LIMIT, Asked
from console.query import with_term

MOST = 8  # values of one facet


@dataclass(frozen=True, kw_only=True, slots=True)
class FacetValue:
    title: str
    count: int
    is_on: bool
    link: str  # the list with this value switched


@dataclass(frozen=True, kw_only=True, slots=True)
class Facet:
    name: str
    title: str
    values: tuple[FacetValue, ...]
    is_capped: bool  # only the newest COUNT_LIMIT rows were counted


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """How a facet is counted: the value that a row's `columns` make, None for a row that has none."""

    name: str  # of the field
    title: str
    columns: tuple[str, ...]
    value: Callable[..., str | None] = lambda value: value


def count_facets(
    asked: Asked, rows: Callable[[Asked], QuerySet[Any]], facets: tuple[Counted, ...], *, at: str, of: str = ""
) -> list[Facet]:
    """`rows` are what an `Asked` matches. Rows with the same column `of` count once; empty: every row counts."""
    chosen = {one.name for one in facets if asked.query.values_of(one.name)}
    free = tuple(one for one in facets if one.name not in chosen)
    found = _count(rows(asked), free, at, of) if free else {}
    for one in facets:
        if one.name in chosen:
            others = replace(asked, query=asked.query.without(one.name))
            found |= _count(rows(others), (one,), at, of)
    return [_facet(asked, one, *found[one.name]) for one in facets]


def _count(rows: QuerySet[Any], facets: tuple[Counted, ...], at: str, of: str) -> dict[str, tuple[Counter[str], bool]]:
    columns = list(dict.fromkeys(column for one in facets for column in one.columns))
    newest = list(rows.order_by(f"-{at}").values_list(*([of] if of else ["pk"]), *columns)[:COUNT_LIMIT])
    places = {column: i + 1 for i, column in enumerate(columns)}
    found = {}
    for one in facets:
        seen = {(row[0], one.value(*(row[places[column]] for column in one.columns))) for row in newest}
        found[one.name] = (Counter(value for _, value in seen if value is not None), len(newest) == COUNT_LIMIT)
    return found


def _facet(asked: Asked, one: Counted, counts: Counter[str], is_capped: bool) -> Facet:
    """Values that are on are kept even where nothing has them."""
    on = asked.query.values_of(one.name)
    common = sorted(counts, key=lambda value: (-counts[value], value))[:MOST]
    shown = [*common, *(value for value in on if value not in common)]
    values = tuple(
        FacetValue(
            title=value,
            count=counts[value],
            is_on=value in on,
            link=asked.link(q=with_term(asked.query.text, one.name, _switched(on, value)) or None),
        )
        for value in shown
    )
    return Facet(name=one.name, title=one.title, values=values, is_capped=is_capped)


def _switched(on: tuple[str, ...], value: str) -> list[str]:
    return [other for other in on if other != value] if value in on else [*on, value]
