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
q, columns, range, from, to, tz, before, after, refresh; a link may also name a field itself, `?outcome=reject`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render

from console.patience import TooSlow, patience
from console.query import Fields, Query, written
from console.timerange import TimeRange
from registry.errors import InvalidInput
from registry.saved_views import saved_views

T = TypeVar("T")

PAGE = 50
COUNT_LIMIT = 10_000  # rows are counted up to here; beyond it a page says "more than"
PATIENCE_S = 8.0  # a search may take this long
PLACE = ("before", "after", "page")  # of the address: where in the list, forgotten when the filter changes
PASSING = (*PLACE, "peek", "part", "format")  # what only one request means


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

    def _with_query(self, params: dict[str, str]) -> dict[str, str]:
        """A link may name a field itself, `?outcome=reject`; it becomes part of the query."""
        terms = [written(one.name, params.pop(one.name)) for one in self.fields if params.get(one.name)]
        return params | {"q": " ".join([*filter(None, [params.get("q")]), *terms])} if terms else params

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
class Cursor:
    """A row's place in a list that is ordered by time and id."""

    at: datetime
    id: int | UUID

    @classmethod
    def parse(cls, text: str) -> "Cursor | None":
        """None for empty. Raises InvalidInput."""
        if not text:
            return None
        try:
            at, _, number = text.rpartition("~")
            found = cls(at=datetime.fromisoformat(at), id=UUID(number) if "-" in number else int(number))
            if found.at.tzinfo is None or (isinstance(found.id, int) and not 0 <= found.id < 2**63):
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
    """The page of `rows` at the asked place, newest first; `wrap` adds to its rows what the template prints.

    Two queries, and those of `wrap`, however many rows there are.
    """
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
        rows=wrap(found),
        count=min(count, COUNT_LIMIT),
        is_capped=count > COUNT_LIMIT,
        older=asked.link(before=_place(found[-1], at)) if found and has_older else None,
        newer=(asked.link(after=_place(found[0], at)) if found else asked.link()) if has_newer else None,
    )


def keyset_chunk(
    rows: QuerySet[Any], place: Cursor | None, size: int, *, at: str = "at"
) -> tuple[list[Any], Cursor | None]:
    """The next `size` rows after a place, newest first, and the place after them; None when they are the last."""
    found = list((rows.filter(_beyond(place, at, False)) if place else rows).order_by(f"-{at}", "-id")[: size + 1])
    return found[:size], _place(found[size - 1], at) if len(found) > size else None


def _beyond(place: Cursor, at: str, is_upward: bool) -> Q:
    # The first condition alone lets PostgreSQL start in the index at the right time.
    side = "gt" if is_upward else "lt"
    return Q(**{f"{at}__{side}e": place.at}) & (Q(**{f"{at}__{side}": place.at}) | Q(**{f"id__{side}": place.id}))


def _place(row: Any, at: str) -> Cursor:
    return Cursor(at=getattr(row, at), id=row.pk)


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
        counted, problem = _patiently(kind.facets, asked, [])
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
