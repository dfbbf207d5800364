"""The commonest values of a field beside a list, with how many of its newest rows have each.

A facet counts the rows that match everything asked for but its own field, so that the other values stay in sight; all
facets nobody has chosen from share one query.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from django.db import connection
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
    """How a facet is counted: the value that a row's `columns` make, None for a row that has none.

    Of a column written with a question mark, `settled_at?`, only matters whether it is there: True or None.
    """

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
    """All facets in one query, which counts in the database: the newest rows are never brought here."""
    columns = list(dict.fromkeys(column for one in facets for column in one.columns))
    places = {column: place for place, column in enumerate(columns)}
    groups = {one.name: tuple(places[column] for column in one.columns) for one in facets}
    named = [f"{_written(column)} AS c{place}" for column, place in places.items()]
    sets = ", ".join("(" + ", ".join(f"c{place}" for place in group) + ")" for group in dict.fromkeys(groups.values()))
    every = ", ".join(f"c{place}" for place in places.values())
    row = of or "pk"
    newest = rows.order_by(f"-{at}").values(row, *(column.removesuffix("?") for column in columns))[:COUNT_LIMIT]
    query, values = newest.query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            SELECT GROUPING({every}), count(*), count({"DISTINCT " if of else ""}one), {every}
            FROM (SELECT "{row}" AS one, {", ".join(named)} FROM ({query}) newest) named
            GROUP BY GROUPING SETS ({sets}, ())
            """,  # noqa: S608 - names of columns, and a query of the ORM
            values,
        )
        counted = cursor.fetchall()
    by_set: dict[int, list[tuple[Any, ...]]] = {}
    for mask, *row_of_set in counted:
        by_set.setdefault(mask, []).append(tuple(row_of_set))
    nothing = (1 << len(columns)) - 1  # a bit for each column that a set leaves out, the first one's the highest
    is_capped = by_set[nothing][0][0] == COUNT_LIMIT
    found = {}
    for one in facets:
        counts: Counter[str] = Counter()
        mask = nothing - sum(1 << (len(columns) - 1 - place) for place in groups[one.name])
        for _, number, *parts in by_set.get(mask, ()):
            value = one.value(*(parts[place] for place in groups[one.name]))
            if value is not None:
                counts[value] += number
        found[one.name] = (counts, is_capped)
    return found


def _written(column: str) -> str:
    return f'CASE WHEN "{column[:-1]}" IS NOT NULL THEN true END' if column.endswith("?") else f'"{column}"'


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
