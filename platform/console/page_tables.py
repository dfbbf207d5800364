"""A table of a page that is no list, as a file: what the page shows under its filter, every row of it.

    TABLE = PageTable(name="costs", title="By checkpoint and model", page="costs", columns=COLUMNS, ask=ask)

    def ask(request):                       # what the address asks for; raises InvalidInput
        time_range = TimeRange.of(request)
        return lambda: [...]                # the rows, read later inside the tenant: a value for each column

Such tables are bounded, so they are read at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from console.exports import READ_S, Chunk, Place, Read
from console.patience import patience
from registry.models import Member
from registry.tenancy import tenant

Rows = Sequence[Sequence[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class PageTable:
    name: str  # in the export's address and in the file's name
    title: str  # in the page's menu
    page: str  # name of the page's address
    columns: tuple[str, ...]
    ask: Callable[[HttpRequest], Callable[[], Rows]]

    def reader(self, request: HttpRequest, member: Member) -> Read:
        """Raises InvalidInput for an address that asks for what cannot be."""
        rows = self.ask(request)

        def read(place: Place | None, size: int) -> Chunk:
            with tenant(member.project_id), patience(READ_S):
                return Chunk(rows=rows(), next=None)

        return read
