"""Rows that others wrote: CSV, JSON lines, or one JSON list; and a file beside another one.

Streams: one row is held at a time.
"""

import csv
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from evals.importers import reading
from evals.importers.errors import Unreadable

MAX_RUNS = 1000
T = TypeVar("T", bound=Hashable)


def records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, object) of a JSONL file, or of a JSON list. Raises Unreadable for anything but objects."""
    if not reading.head(path, 4096).lstrip().startswith(b"["):
        yield from ((f"{path.name}:{line}", record) for line, record in reading.records(path))
        return
    for number, record in enumerate(reading.elements_at(path), start=1):
        where = f"{path.name}, record {number}"
        if not isinstance(record, dict):
            raise Unreadable("every record is a JSON object", where=where)
        yield where, record


def records_by_id(path: Path, key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Like `records`; of one object whose members are the records, each with the name it has there under `key`."""
    start = reading.head(path).lstrip()
    if start.startswith(b"{") and f'"{key}"'.encode() not in start.split(b"{", 2)[1]:
        with reading.open_file(path) as file:
            for name, raw in reading.members(file, where=path.name):
                where = f"{path.name}, {name}"
                record = reading.parse(raw, where=where)
                if not isinstance(record, dict):
                    raise Unreadable("every record is a JSON object", where=where)
                yield where, {key: name, **record}
    else:
        yield from records(path)


def runs_of(path: Path, measured: Iterable[T]) -> list[T]:
    """What each run of a file is of, in file order. Raises Unreadable beyond MAX_RUNS, each being a pass."""
    found: dict[T, None] = {}
    for each in measured:
        found[each] = None
        if len(found) > MAX_RUNS:
            raise Unreadable(f"more than {MAX_RUNS} models; each of them would be a run", where=path.name)
    return list(found)


def csv_cells(path: Path) -> Iterator[list[str]]:
    """The cells of each row that is not blank, the header's first. Raises Unreadable: not UTF-8, or no CSV."""
    csv.field_size_limit(reading.MAX_DOCUMENT_BYTES)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from (row for row in csv.reader(file, strict=True) if row)
    except UnicodeDecodeError:
        raise Unreadable("not UTF-8; write the file as UTF-8", where=path.name) from None
    except csv.Error as error:
        raise Unreadable(f"not CSV: {error}", where=path.name) from None
    except (OSError, ValueError) as error:
        raise Unreadable(f"cannot be opened: {error}", where=path.name) from None


def csv_rows(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """(place, cell by column) of each row below the header. Raises Unreadable for a row longer than the header."""
    lines = csv_cells(path)
    header = next(lines, [])
    for number, cells in enumerate(lines, start=1):
        where = f"{path.name}, row {number}"
        if len(cells) > len(header):
            raise Unreadable(f"{len(cells)} cells under {len(header)} columns", where=where)
        yield where, dict(zip(header, cells, strict=False))


def file_in(folder: Path, name: str) -> Path | None:
    """A file that lies in the folder itself; None where there is none, or only a link."""
    path = folder / name
    try:
        return path if path.is_file() and not path.is_symlink() else None
    except OSError:  # a folder that may not be entered
        return None
