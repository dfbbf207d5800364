"""A list page: what its address asks for, one page of rows, and the toolbar around them.

    TURNS = ListKind(
        name="turns", noun="turn", title="Turns", fields=FIELDS, columns=COLUMNS, facets=("outcome", "source"),
        rows_template="turns/_rows.html", empty_template="turns/_empty.html", export="turns-export",
    )

    @require_safe
    @member_required()
    def turns(request):
        return show_list(request, TURNS, find=reads.find_turns, facets=reads.turn_facets)

`find(asked) -> Found` reads one page (`keyset_page` does it for rows with a time and an id); `facets(asked) -> [Facet]`
is asked for apart, after the page stands. The page extends `base.html` and includes `partials/listing.html`. The rows'
template prints `<tr data-peek="{{ url }}">` for each of `rows`, and a cell for each name in `shown`, in the
columns' order. Everything a reader chose is in the address: q, columns, range, from, to, tz, before, after, refresh.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from console.query import Fields, Query, with_term
from console.timerange import TimeRange
from registry.errors import InvalidInput

PAGE = 50
COUNT_LIMIT = 10_000  # rows are counted up to here; beyond it a page says "more than"
PLACE = ("before", "after", "page")  # of the address: where in the list, forgotten when the filter changes


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    name: str
    title: str  # with the unit
    is_default: bool = True
    is_number: bool = False  # right aligned
    hint: str = ""  # what it means, in the header's title


@dataclass(frozen=True, kw_only=True, slots=True)
class ListKind:
    """What one list is, the same for every request."""

    name: str  # of its address; saved views belong to it
    noun: str
    title: str
    fields: Fields
    columns: tuple[Column, ...]
    rows_template: str
    empty_template: str  # shown when nothing was ever there; nothing matching is said by the frame
    facets: tuple[str, ...] = ()  # names of fields
    default_range: str = "7d"
    page_size: int = PAGE
    export: str = ""  # name of the address that streams the rows; empty: none
    bulk_template: str = ""  # buttons for the rows that are ticked; empty: rows have no box
    example: str = ""  # of a query, shown in the empty bar

    def asked(self, request: HttpRequest) -> "Asked":
        """Never raises: what cannot be read is said in `problem`, and no rows are shown for it."""
        params = {name: value.replace("\x00", "") for name, value in request.GET.items()}
        problem, query, before, after = "", Query(), None, None
        try:
            query = self.fields.parse(params.get("q", ""))
            before, after = Cursor.parse(params.get("before", "")), Cursor.parse(params.get("after", ""))
        except InvalidInput as error:
            problem = error.message
        return Asked(
            kind=self,
            params=params,
            query=query,
            problem=problem,
            time_range=TimeRange.of(request, self.default_range),
            columns=self._columns(params.get("columns", "")),
            before=before,
            after=after,
        )

    def _columns(self, names: str) -> tuple[Column, ...]:
        wanted = set(names.split(","))
        chosen = tuple(column for column in self.columns if column.name in wanted)
        return chosen or tuple(column for column in self.columns if column.is_default)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cursor:
    """A row's place in a list that is ordered by time and id."""

    at: datetime
    id: int

    @classmethod
    def parse(cls, text: str) -> "Cursor | None":
        """None for empty. Raises InvalidInput."""
        if not text:
            return None
        try:
            at, _, number = text.rpartition("~")
            found = cls(at=datetime.fromisoformat(at), id=int(number))
            if found.at.tzinfo is None or not 0 <= found.id < 2**63:
                raise ValueError
        except ValueError:
            raise InvalidInput(f"{text[:60]!r} is no place in this list; open it anew", field="before") from None
        return found

    def __str__(self) -> str:
        return f"{self.at.isoformat()}~{self.id}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One request's wish."""

    kind: ListKind
    params: dict[str, str]  # the address's, as they came
    query: Query
    problem: str  # why the query or place could not be read; empty: it could
    time_range: TimeRange
    columns: tuple[Column, ...]
    before: Cursor | None = None
    after: Cursor | None = None

    @property
    def shown(self) -> set[str]:
        return {column.name for column in self.columns}

    @property
    def is_filtered(self) -> bool:
        """Beyond the default range."""
        return not self.query.is_empty or bool(self.problem)

    def link(self, **changes: object) -> str:
        """This list with parameters changed, None removes one; the place is forgotten unless it is what changes."""
        kept = {
            name: value for name, value in self.params.items() if name not in PLACE and name not in ("part", "peek")
        }
        wanted = kept | {name: str(value) for name, value in changes.items() if value is not None}
        return "?" + urlencode(
            {name: value for name, value in wanted.items() if name not in changes or changes[name] is not None}
        )

    @property
    def here(self) -> str:
        """The filter without the place: what a saved view keeps, without the question mark."""
        return self.link()[1:]

    @property
    def csv(self) -> str:
        return self.link(format="csv")

    @property
    def jsonl(self) -> str:
        return self.link(format="jsonl")


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """One page of rows. `older` and `newer` are addresses, None where the list ends."""

    rows: Sequence[Any]
    count: int  # of all that match, up to COUNT_LIMIT
    is_capped: bool = False  # there are more than `count`
    older: str | None = None
    newer: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FacetValue:
    title: str
    count: int
    is_on: bool
    link: str  # the list with this value switched


@dataclass(frozen=True, kw_only=True, slots=True)
class Facet:
    """The commonest values of one field among the newest rows that match everything else."""

    name: str
    title: str
    values: tuple[FacetValue, ...]
    num_counted: int  # rows looked at
    is_capped: bool  # there are more rows than were looked at


def keyset_page(rows: QuerySet[Any], asked: Asked, *, at: str = "at") -> Found:
    """The page of `rows` at the asked place, newest first. Two queries however many rows there are."""
    size = asked.kind.page_size
    is_upward = asked.after is not None and asked.before is None
    place = asked.after if is_upward else asked.before
    order = (at, "id") if is_upward else (f"-{at}", "-id")
    found = list((rows.filter(_beyond(place, at, is_upward)) if place else rows).order_by(*order)[: size + 1])
    has_more = len(found) > size
    found = found[:size][::-1] if is_upward else found[:size]
    count = rows.order_by()[: COUNT_LIMIT + 1].count()
    has_older, has_newer = (bool(found), has_more) if is_upward else (has_more, place is not None)
    return Found(
        rows=found,
        count=min(count, COUNT_LIMIT),
        is_capped=count > COUNT_LIMIT,
        older=asked.link(before=_place(found[-1], at)) if found and has_older else None,
        newer=(asked.link(after=_place(found[0], at)) if found else asked.link()) if has_newer else None,
    )


def _beyond(place: Cursor, at: str, is_upward: bool) -> Q:
    # The first condition alone lets PostgreSQL start in the index at the right time.
    side = "gt" if is_upward else "lt"
    return Q(**{f"{at}__{side}e": place.at}) & (Q(**{f"{at}__{side}": place.at}) | Q(**{f"id__{side}": place.id}))


def _place(row: Any, at: str) -> Cursor:
    return Cursor(at=getattr(row, at), id=row.pk)


def facet(asked: Asked, name: str, counts: dict[str, int], *, title: str = "", limit: int = 10) -> Facet:
    """From value -> rows; values that are on are kept even where nothing has them."""
    on = asked.query.values_of(name)
    ranked = sorted(counts, key=lambda value: (-counts[value], value))[:limit]
    shown = [*ranked, *(value for value in on if value not in ranked)]
    num_counted = sum(counts.values())
    return Facet(
        name=name,
        title=title or name.replace("_", " "),
        values=tuple(
            FacetValue(
                title=value,
                count=counts.get(value, 0),
                is_on=value in on,
                link=asked.link(
                    q=with_term(asked.query.text, name, [v for v in on if v != value] if value in on else [*on, value])
                ),
            )
            for value in shown
        ),
        num_counted=num_counted,
        is_capped=num_counted >= COUNT_LIMIT,
    )


def show_list(
    request: HttpRequest,
    kind: ListKind,
    *,
    find: Callable[[Asked], Found],
    facets: Callable[[Asked], list[Facet]] | None = None,
    context: Callable[[Found], dict[str, Any]] = lambda found: {},
    template: str = "partials/list_page.html",
) -> HttpResponse:
    """The page; only its results for htmx; only its facets for `part=facets`. `context` adds to the templates'."""
    asked = kind.asked(request)
    base = {"listing": kind, "asked": asked, "time_range": asked.time_range, "shown": asked.shown}
    if request.GET.get("part") == "facets":
        found_facets = facets(asked) if facets and not asked.problem else []
        return render(request, "partials/facets.html", base | {"facets": found_facets})
    found = Found(rows=[], count=0) if asked.problem else find(asked)
    base |= {"found": found, "rows": found.rows} | context(found)
    if getattr(request, "htmx", False):
        return render(request, "partials/listing_results.html", base)
    return render(request, template, base)
