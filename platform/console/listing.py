"""A list page: what its address asks for, one page of rows, and the toolbar around them.

    TURNS = ListKind(
        name="turns", noun="turn", title="Turns", fields=FIELDS, columns=COLUMNS, find=find, newest=newest,
        rows_template="turns/_rows.html", empty_template="turns/_empty.html",
    )

    @require_safe
    @member_required()
    def turns(request):
        return show_list(request, TURNS)

`find(asked) -> Found` reads one page (`keyset_page` does it for rows with a time and an id); `facets(asked) -> [Facet]`
(`console.facets`) is asked for apart, after the page stands. The rows' template prints `<tr data-peek="{{ url }}">` for
each of `rows`, and a cell for each name in `shown`, in the columns' order. Everything a reader chose is in the address:
q, columns, sort, range, from, to, tz, before, after, refresh; a link may also name a field itself, `?outcome=reject`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render

from console.keyset import Cursor, Order
from console.patience import TooSlow, patience
from console.query import Fields, Query, written
from console.timerange import TimeRange
from registry.errors import InvalidInput
from registry.saved_views import saved_views

T = TypeVar("T")

PAGE = 50
COUNT_LIMIT = 10_000  # rows are counted up to here; beyond it a page says "more than"
PATIENCE_S = 8.0  # a search may take this long
NEWEST = Order(path="at")
PLACE = ("before", "after", "page")  # of the address: where in the list, forgotten when the filter changes
PASSING = (*PLACE, "peek", "part", "format")  # what only one request means


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    name: str
    title: str  # with the unit
    is_default: bool = True
    is_number: bool = False  # right aligned
    hint: str = ""  # what it means, in the header's title
    sort: str = ""  # a column of the row's own that a click on the header orders by; empty: none
    is_time: bool = False  # what it orders by is a time, else a number


@dataclass(frozen=True, kw_only=True, slots=True)
class ListKind:
    """What one list is, the same for every request."""

    name: str  # of its address; saved views belong to it
    noun: str
    title: str
    fields: Fields
    columns: tuple[Column, ...]
    find: Callable[["Asked"], "Found"]
    newest: Callable[[], datetime | None]  # when the newest row of all was; None: there never was one
    facets: Callable[["Asked"], list[Any]] | None = None  # of console.facets
    export: "ExportOf | None" = None
    rows_template: str
    empty_template: str  # shown when nothing was ever there; nothing matching is said by the frame
    default_range: str = "7d"
    page_size: int = PAGE
    bulk_template: str = ""  # buttons for the rows that are ticked; empty: rows have no box
    example: str = ""  # of a query, shown in the empty bar

    @property
    def has_facets(self) -> bool:  # a template would call `facets`
        return self.facets is not None

    @property
    def has_search(self) -> bool:
        return self.fields.search is not None

    def asked(self, request: HttpRequest) -> "Asked":
        """Never raises: what cannot be read is said in `problem`, and no rows are shown for it."""
        params = self._with_query({name: value.replace("\x00", "") for name, value in request.GET.items()})
        problem, query, before, after = "", Query(), None, None
        order = self._order(params.get("sort", ""))
        try:
            query = self.fields.parse(params.get("q", ""))
            before, after = (Cursor.parse(params.get(name, ""), order or NEWEST) for name in ("before", "after"))
        except InvalidInput as error:
            problem = error.message
        return Asked(
            kind=self,
            params=params,
            query=query,
            problem=problem,
            time_range=TimeRange.of(request, self.default_range),
            columns=self._columns(params.get("columns", "")),
            order=order,
            before=before,
            after=after,
        )

    def _with_query(self, params: dict[str, str]) -> dict[str, str]:
        """A link may name a field itself, `?outcome=reject`; it becomes part of the query."""
        terms = [written(one.name, params.pop(one.name)) for one in self.fields if params.get(one.name)]
        return params | {"q": " ".join([*filter(None, [params.get("q")]), *terms])} if terms else params

    def _order(self, sort: str) -> Order | None:
        """`latency_ms` upward, `-latency_ms` downward; what no column sorts by is the usual order."""
        for column in self.columns:
            if column.sort and column.name == sort.removeprefix("-"):
                return Order(path=column.sort, is_descending=sort.startswith("-"), is_time=column.is_time)
        return None

    def _columns(self, names: str) -> tuple[Column, ...]:
        wanted = set(names.split(","))
        chosen = tuple(column for column in self.columns if column.name in wanted)
        return chosen or tuple(column for column in self.columns if column.is_default)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportOf:
    """How the rows of a list become lines of a file."""

    columns: tuple[str, ...]
    rows: Callable[["Asked"], QuerySet[Any]]
    values: Callable[[list[Any]], Sequence[Sequence[Any]]]  # a value for each column; some rows at a time
    at: str = "at"  # the time they are ordered by


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One request's wish."""

    kind: ListKind
    params: dict[str, str]  # the address's, as they came
    query: Query
    problem: str  # why the query or place could not be read; empty: it could
    time_range: TimeRange
    columns: tuple[Column, ...]
    order: Order | None = None  # None: newest first
    before: Cursor | None = None
    after: Cursor | None = None

    @property
    def query_text(self) -> str:
        """As it stands in the bar, also when it could not be read."""
        return self.params.get("q", "")

    @property
    def shown(self) -> set[str]:
        return {column.name for column in self.columns}

    @property
    def is_filtered(self) -> bool:
        """Beyond the default range."""
        return not self.query.is_empty or bool(self.problem)

    def link(self, **changes: object) -> str:
        """This list with parameters changed, None removes one; the place is forgotten unless it is what changes."""
        wanted: dict[str, object] = {name: value for name, value in self.params.items() if name not in PASSING}
        return "?" + urlencode({name: value for name, value in (wanted | changes).items() if value is not None})

    @property
    def here(self) -> str:
        """The filter without the place: what a saved view keeps, without the question mark."""
        return self.link()[1:]

    @property
    def headers(self) -> list["Header"]:
        return [self._header(column) for column in self.columns]

    def _header(self, column: Column) -> "Header":
        if not column.sort:
            return Header(column=column)
        now = self.params.get("sort", "")
        downward, upward = f"-{column.name}", column.name
        state = {downward: "descending", upward: "ascending"}.get(now, "none")
        following = {downward: upward, upward: None}.get(now, downward)
        return Header(column=column, sorted=state, link=self.link(sort=following))

    @property
    def facets_link(self) -> str:
        return self.link(part="facets")

    @property
    def csv_link(self) -> str:
        return self.link(format="csv")

    @property
    def jsonl_link(self) -> str:
        return self.link(format="jsonl")

    @property
    def start_link(self) -> str:
        """At its newest row."""
        return self.link()

    @property
    def default_columns_link(self) -> str:
        return self.link(columns=None)

    @property
    def cleared_link(self) -> str:
        """Without a query."""
        return self.link(q=None)

    @property
    def widest_link(self) -> str:
        return self.link(**{"range": "90d", "from": None, "to": None})


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """Of one column; `link` orders by it, then the other way round, then as usual."""

    column: Column
    sorted: str = ""  # descending, ascending, none; empty: it cannot be
    link: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """One page of rows. `older` and `newer` are addresses, None where the list ends."""

    rows: Sequence[Any]
    count: int  # of all that match, up to COUNT_LIMIT
    is_capped: bool = False  # there are more than `count`
    older: str | None = None
    newer: str | None = None


def tidy(query: str) -> str:
    """A query string with nothing but a list's filter: without the place in it and what only one request means."""
    kept = QueryDict(query.replace("\x00", ""), mutable=True)
    for name in PASSING:
        kept.pop(name, None)
    return kept.urlencode()


def keyset_page(
    rows: QuerySet[Any], asked: Asked, *, at: str = "at", wrap: Callable[[list[Any]], Sequence[Any]] = list
) -> Found:
    """The page of `rows` at the asked place, by the asked order, else newest first by `at`.

    `wrap` adds to the rows what the template prints. Two queries, and those of `wrap`, however many rows there are.
    """
    order = asked.order or Order(path=at)
    rows = order.rows(rows)
    size, is_backward = asked.kind.page_size, asked.after is not None and asked.before is None
    place = asked.after if is_backward else asked.before
    beyond = rows.filter(order.beyond(place, is_backward=is_backward)) if place else rows
    found = list(beyond.order_by(*order.columns(is_backward=is_backward))[: size + 1])
    has_more = len(found) > size
    found = found[:size][::-1] if is_backward else found[:size]
    count = rows.order_by()[: COUNT_LIMIT + 1].count()
    has_older, has_newer = (bool(found), has_more) if is_backward else (has_more, place is not None)
    return Found(
        rows=wrap(found),
        count=min(count, COUNT_LIMIT),
        is_capped=count > COUNT_LIMIT,
        older=asked.link(before=order.place_of(found[-1])) if found and has_older else None,
        newer=(asked.link(after=order.place_of(found[0])) if found else asked.link()) if has_newer else None,
    )


def show_list(
    request: HttpRequest,
    kind: ListKind,
    *,
    context: Callable[[Found], dict[str, Any]] = lambda found: {},
    template: str = "partials/list_page.html",
) -> HttpResponse:
    """The page; only its results for htmx; only its facets for `part=facets`. `context` adds to the templates'."""
    asked = kind.asked(request)
    base = {"listing": kind, "asked": asked, "time_range": asked.time_range, "shown": asked.shown}
    if request.GET.get("part") == "facets":
        counted, problem = _patiently(kind.facets, asked, list[Any]())
        return render(request, "partials/facets.html", base | {"facets": counted, "facets_problem": problem})
    found, problem = _patiently(kind.find, asked, Found(rows=[], count=0))
    base |= {"found": found, "rows": found.rows, "problem": problem}
    if not found.rows and not problem:
        base["newest"] = kind.newest()
    base |= context(found)
    if getattr(request, "htmx", False):
        return render(request, "partials/listing_results.html", base)
    return render(request, template, base | {"views": saved_views(request.user, kind.name)})


def _patiently(read: Callable[[Asked], T] | None, asked: Asked, nothing: T) -> tuple[T, str]:
    """What was read, or nothing and why."""
    if read is None or asked.problem:
        return nothing, asked.problem
    try:
        with patience(PATIENCE_S):
            return read(asked), ""
    except TooSlow:
        return nothing, f"This search was stopped after {PATIENCE_S:.0f} s; choose a shorter time range or add a key."
