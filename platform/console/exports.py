"""Rows as a file, streamed: as many as match, in constant memory, each chunk read in its own transaction.

    export = Export(name="turns", columns=("turn", "at", "completion"), read=read_chunk)
    return stream(export, "csv" or "jsonl")

CSV is RFC 4180 with a header: every text is quoted with its line breaks kept, an unknown value is an empty field
without quotes, so that what is read back equals what was stored. JSONL is one object a line, null for unknown.

A chunk that the database is stopped at (console.patience) ends the file with a line that is no row: CSV with the one
value CUT, JSONL with {"error": {"code": "cut_short", "message": CUT}}. So no file that lacks rows looks whole.

READERS chunks are read at once, whoever asked for them; with more exports than that each waits for its turns.
`num_open` says how many are being written, so that a page can say that another one would have to wait.
"""

import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection
from django.http import StreamingHttpResponse

from console.patience import TooSlow
from registry.errors import InvalidInput

log = logging.getLogger(__name__)

READ_S = 60.0  # for each query of a chunk; few threads read for everybody
CUT = "export cut short: reading on took too long; choose a shorter time range"
FIRST_ROWS = 100  # of the first chunk; later ones are as long as keeps a chunk near CHUNK_CHARACTERS
MOST_ROWS = 2000
CHUNK_CHARACTERS = 2_000_000
FORMATS = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson; charset=utf-8"}
READERS = 2  # chunks read at once
_readers = ThreadPoolExecutor(max_workers=READERS, thread_name_prefix="export")
_open: set[object] = set()  # exports that are being written by this process
Place = Any  # where `read` goes on; only it knows what that is


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """Some rows and where the next ones start."""

    rows: Sequence[Sequence[Any]]  # a value for each column: text, number, bool, datetime, JSON or None
    next: Place | None  # where the following chunk starts; None: this was the last


Read = Callable[[Place | None, int], Chunk]  # from which place on, and how many


@dataclass(frozen=True, kw_only=True, slots=True)
class Export:
    name: str  # of the file, without its ending
    columns: tuple[str, ...]
    read: Read  # opens its own tenant, with patience(READ_S); called outside the request


def stream(export: Export, format: str) -> StreamingHttpResponse:
    """Raises InvalidInput for an unknown format."""
    if format not in FORMATS:
        raise InvalidInput(f"no format {format[:20]!r}; choose csv or jsonl", field="format")
    write = _csv_line if format == "csv" else _json_line(export.columns)
    response = StreamingHttpResponse(_lines(export, write, format), content_type=FORMATS[format])
    response["Content-Disposition"] = f'attachment; filename="{export.name}.{format}"'
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response


def num_open() -> int:
    """Exports that are being written now."""
    return len(_open)


async def _lines(export: Export, write: Callable[[Sequence[Any]], str], format: str) -> AsyncIterator[str]:
    with _counted():
        if format == "csv":
            yield _csv_line(export.columns)
        place: Place | None = None
        size = FIRST_ROWS
        while True:
            try:
                chunk = await sync_to_async(_and_return_connection, thread_sensitive=False, executor=_readers)(
                    export.read, place, size
                )
            except TooSlow:
                log.error("the export %s is cut short: a chunk took longer than %g s", export.name, READ_S)
                yield _cut_line(format)
                return
            text = "".join(write(row) for row in chunk.rows)
            yield text
            if chunk.next is None:
                return
            place, size = chunk.next, next_size(len(text), len(chunk.rows))


@contextmanager
def _counted() -> Iterator[None]:
    mine = object()
    _open.add(mine)
    try:
        yield
    finally:
        _open.discard(mine)


def next_size(num_characters: int, num_rows: int) -> int:
    """How many rows to read next, so that what is held stays the same for short rows and for long ones."""
    return max(1, min(MOST_ROWS, CHUNK_CHARACTERS * num_rows // max(1, num_characters)))


def _and_return_connection(read: Read, place: Place | None, size: int) -> Chunk:
    try:
        return read(place, size)
    finally:
        connection.close()


def _cut_line(format: str) -> str:
    """No row: of one value where rows have several, or without their names."""
    return _csv_line([CUT]) if format == "csv" else json.dumps({"error": {"code": "cut_short", "message": CUT}}) + "\n"


def _csv_line(row: Sequence[Any]) -> str:
    return ",".join(_cell(value) for value in row) + "\r\n"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    text = value if isinstance(value, str) else _plain(value)
    return '"' + text.replace('"', '""') + '"'


def _json_line(columns: tuple[str, ...]) -> Callable[[Sequence[Any]], str]:
    def write(row: Sequence[Any]) -> str:
        return json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False, default=_plain) + "\n"

    return write


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
