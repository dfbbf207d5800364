"""The rows of a list as a file, streamed: as many as match, in constant memory, each chunk read in its own transaction.

    export = Export(name="turns", columns=("turn", "at", "completion"), read=read_chunk)
    return stream(export, "csv" or "jsonl")

CSV is RFC 4180 with a header: every text is quoted with its line breaks kept, an unknown value is an empty field
without quotes, so that what is read back equals what was stored. JSONL is one object a line, null for unknown.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection
from django.http import StreamingHttpResponse

from console.listing import Cursor
from registry.errors import InvalidInput

CHUNK = 500  # rows read at once
FORMATS = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson; charset=utf-8"}
_readers = ThreadPoolExecutor(max_workers=2, thread_name_prefix="export")


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    rows: Sequence[Sequence[Any]]  # a value for each column: text, number, bool, datetime, JSON or None
    next: Cursor | None  # where the following chunk starts; None: this was the last


@dataclass(frozen=True, kw_only=True, slots=True)
class Export:
    name: str  # of the file, without its ending
    columns: tuple[str, ...]
    read: Callable[[Cursor | None], Chunk]  # opens its own tenant; called outside the request


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


async def _lines(export: Export, write: Callable[[Sequence[Any]], str], format: str) -> AsyncIterator[str]:
    if format == "csv":
        yield _csv_line(export.columns)
    place: Cursor | None = None
    while True:
        chunk = await _read(export.read, place)
        yield "".join(write(row) for row in chunk.rows)
        if chunk.next is None:
            return
        place = chunk.next
        await asyncio.sleep(0)  # let a reader who left be noticed


async def _read(read: Callable[[Cursor | None], Chunk], place: Cursor | None) -> Chunk:
    return await sync_to_async(_and_return_connection, thread_sensitive=False, executor=_readers)(read, place)


def _and_return_connection(read: Callable[[Cursor | None], Chunk], place: Cursor | None) -> Chunk:
    try:
        return read(place)
    finally:
        connection.close()


def _csv_line(row: Sequence[Any]) -> str:
    return ",".join(_cell(value) for value in row) + "\r\n"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
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
