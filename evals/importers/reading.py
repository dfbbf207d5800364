"""Reading files that others wrote, in bounded memory: JSON that is almost JSON, lines, and big arrays.

Pure: bytes in, Python values out. Everything that is wrong is `Unreadable`, with the place. NaN and infinities, which
Python's writers emit and JSON does not know, become None and are counted. Not here: zip archives (`archive`), and
what a field may hold (`fields`).
"""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import msgspec

from evals.importers.errors import Unreadable

MAX_DOCUMENT_BYTES = 64 * 1024**2  # of JSON that is decoded at once: a document, a line, one element of an array
CHUNK_BYTES = 256 * 1024
MAX_DIGITS = 4000  # of an integer; Python refuses to convert more
MAX_FILES = 10_000  # of a folder
BOM = b"\xef\xbb\xbf"

_decoder = msgspec.json.Decoder()


def parse(data: bytes, *, where: str = "", not_finite: "Counter[str] | None" = None) -> Any:
    """The value of one JSON document. NaN, Infinity and 1e400 become None; `not_finite` counts them by how they look.

    Raises Unreadable: not JSON, not UTF-8, nested too deep, or more than MAX_DOCUMENT_BYTES.
    """
    if len(data) > MAX_DOCUMENT_BYTES:
        raise Unreadable(f"{len(data):,} bytes in one JSON value; at most {MAX_DOCUMENT_BYTES:,} are read", where=where)
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return _parse_tolerantly(data, where, Counter() if not_finite is None else not_finite)


def _parse_tolerantly(data: bytes, where: str, not_finite: "Counter[str]") -> Any:
    def constant(name: str) -> None:
        not_finite[name] += 1

    def number(text: str) -> float | None:
        value = float(text)
        if math.isfinite(value):
            return value
        not_finite["Infinity"] += 1
        return None

    try:
        text = data.removeprefix(BOM).decode()
        return json.loads(text, parse_constant=constant, parse_float=number)
    except UnicodeDecodeError as error:
        raise Unreadable(f"not UTF-8 at byte {error.start:,}; write the file as UTF-8", where=where) from None
    except RecursionError:
        raise Unreadable("nested too deep to read", where=where) from None
    except ValueError as error:
        raise Unreadable(f"not JSON: {error}", where=where) from None


def head(path: Path, num_bytes: int = 64 * 1024) -> bytes:
    """The first bytes of a file, for sniffing; empty where there is none. Never raises."""
    try:
        with path.open("rb") as file:
            return file.read(num_bytes).removeprefix(BOM)
    except (OSError, ValueError):
        return b""


def digest(*paths: Path) -> str:
    """sha256 of a file, in hex; of several, that of their digests in the given order."""
    digests = [_digest(path) for path in paths]
    if len(digests) == 1:
        return digests[0].hexdigest()
    return hashlib.sha256(b"".join(one.digest() for one in digests)).hexdigest()


def _digest(path: Path) -> "hashlib._Hash":
    found = hashlib.sha256()
    with open_file(path) as file:
        while chunk := file.read(1024**2):
            found.update(chunk)
    return found


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(number from 1, bytes) of every line that is not blank. Only \\n ends a line; U+2028 is a character."""
    with open_file(path) as file:
        number = 0
        while line := file.readline(MAX_DOCUMENT_BYTES + 2):
            number += 1
            if len(line) > MAX_DOCUMENT_BYTES + 1:
                raise Unreadable(f"a line of more than {MAX_DOCUMENT_BYTES:,} bytes", where=f"{path.name}:{number}")
            if number == 1:
                line = line.removeprefix(BOM)
            if line := line.strip(b"\r\n\t "):
                yield number, line


def records(path: Path, *, not_finite: "Counter[str] | None" = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of a JSONL file. Raises Unreadable for a line that is no JSON object."""
    for number, line in lines(path):
        where = f"{path.name}:{number}"
        record = parse(line, where=where, not_finite=not_finite)
        if not isinstance(record, dict):
            raise Unreadable(f"found {_kind(record)}; every line is a JSON object", where=where)
        yield number, record


def document(path: Path, *, not_finite: "Counter[str] | None" = None) -> Any:
    """The value of a file that is one JSON document of at most MAX_DOCUMENT_BYTES."""
    with open_file(path) as file:
        data = file.read(MAX_DOCUMENT_BYTES + 1)
    return parse(data, where=path.name, not_finite=not_finite)


def outline(path: Path, *, without: Collection[tuple[str, ...]]) -> Any:
    """A document of any size less the values under these keys, which are passed over without being held."""
    with open_file(path) as file:
        return outline_of(file, where=path.name, without=without)


def outline_of(
    stream: IO[bytes],
    *,
    where: str,
    without: Collection[tuple[str, ...]],
    not_finite: "Counter[str] | None" = None,
) -> Any:
    return _Scanner(stream, where).outline(without, not_finite)


def elements_at(
    path: Path,
    *keys: str,
    without: Collection[tuple[str, ...]] = (),
    not_finite: "Counter[str] | None" = None,
) -> Iterator[Any]:
    """The elements of the array under `keys` of a document of any size, one at a time; nothing where there is none.

    Example: of {"results": {"version": 3, "results": [1, 2]}} elements_at(path, "results", "results") gives 1, 2.
    `without` is that of `outline`, for each element.
    """
    with open_file(path) as file:
        scanner = _Scanner(file, path.name)
        if all(scanner.enter(key) for key in keys) and scanner.peek() == b"[":
            for number in scanner.items():
                scanner.where = f"{path.name}, {'.'.join(keys) or 'element'} {number}"
                yield scanner.outline(without, not_finite)


def elements(stream: IO[bytes], *, where: str) -> Iterator[bytes]:
    """The raw bytes of every element of one JSON array of any size."""
    scanner = _Scanner(stream, where)
    if scanner.peek() != b"[":
        raise Unreadable("a JSON array was expected", where=where)
    yield from scanner.elements()


def members(
    stream: IO[bytes], *, where: str, apart: Collection[str] = (), skip: Collection[str] = ()
) -> Iterator[tuple[str, bytes]]:
    """(key, raw bytes of the value) of one JSON object of any size, in file order.

    An array under a key of `apart` comes element by element, each as (key, raw); `skip` is passed over without being
    held. Example: members(b'{"a": 1, "b": [2, 3]}', apart={"b"}) gives ("a", b"1"), ("b", b"2"), ("b", b"3").
    """
    scanner = _Scanner(stream, where)
    for key in scanner.keys():  # noqa: SIM118 - not a dict's
        if key in skip:
            scanner.pass_over()
        elif key in apart and scanner.peek() == b"[":
            for raw in scanner.elements():
                yield key, raw
        else:
            yield key, scanner.value()


def folders_in(folder: Path) -> list[Path]:
    """Its folders by name; no links. Never raises."""
    return [each for each in _entries(folder) if each.is_dir()]


def files_under(folder: Path, *, depth: int = 8) -> list[Path]:
    """Files at most `depth` folders down, by name, at most MAX_FILES of them; no links, nothing hidden."""
    found: list[Path] = []
    pending = [(folder, 0)]
    while pending and len(found) < MAX_FILES:
        here, level = pending.pop()
        entries = _entries(here)
        found += [each for each in entries if each.is_file()]
        if level < depth:
            pending += [(each, level + 1) for each in reversed(entries) if each.is_dir()]
    return sorted(found)[:MAX_FILES]


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(each for each in folder.iterdir() if not each.is_symlink() and not each.name.startswith("."))
    except OSError:
        return []


def open_file(path: Path) -> IO[bytes]:
    """Raises Unreadable where the system does not let it be read."""
    try:
        return path.open("rb")
    except (OSError, ValueError) as error:
        raise Unreadable(f"cannot be opened: {getattr(error, 'strerror', None) or error}", where=path.name) from None


_SPACE = re.compile(rb"[ \t\r\n]*")
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+'  # without its closing quote
_STRUCTURE = re.compile(
    # an object or array with none in it, at once; else a bracket; else a string, cut off without group 1
    rb'[\[{](?:[^\[\]{}"]++|' + _STRING + rb'")*+[\]}]|[\[\]{}]|' + _STRING + rb'(")?',
    re.DOTALL,
)
_SCALAR_END = re.compile(rb"[,\]} \t\r\n]")


class _Scanner:
    """Walks over JSON text without decoding it; holds one value at a time."""

    def __init__(self, stream: IO[bytes], where: str) -> None:
        self.stream, self.where = stream, where
        self.buffer, self.position = b"", 0
        self._more()
        self.buffer = self.buffer.removeprefix(BOM)

    def peek(self) -> bytes:
        """The next byte that is not space; empty at the end."""
        while True:
            found = _SPACE.match(self.buffer, self.position)
            assert found
            self.position = found.end()
            if self.position < len(self.buffer):
                return self.buffer[self.position : self.position + 1]
            if not self._more():
                return b""

    def expect(self, byte: bytes) -> None:
        if self.peek() != byte:
            raise Unreadable(self._cut_or(f"{byte.decode()!r} was expected"), where=self.where)
        self.position += 1

    def keys(self) -> Iterator[str]:
        """The keys of the object that begins here. Whoever asks takes or passes over each value before the next."""
        self.expect(b"{")
        if self.peek() == b"}":
            self.position += 1
            return
        while True:
            if self.peek() != b'"':
                raise Unreadable(self._cut_or("a key in double quotes was expected"), where=self.where)
            key = parse(self.value(), where=self.where)
            self.expect(b":")
            yield str(key)
            if self.separator(b"}"):
                return

    def separator(self, end: bytes) -> bool:
        """Pass a comma, or the end: True."""
        found = self.peek()
        if found not in (b",", end):
            raise Unreadable(self._cut_or(f"',' or {end.decode()!r} was expected"), where=self.where)
        self.position += 1
        return found == end

    def items(self) -> Iterator[int]:
        """The elements of the array that begins here, by number from 1. Whoever asks takes each before the next."""
        self.expect(b"[")
        if self.peek() == b"]":
            self.position += 1
            return
        number = 1
        while True:
            yield number
            number += 1
            if self.separator(b"]"):
                return

    def elements(self) -> Iterator[bytes]:
        for _number in self.items():
            yield self.value()

    def enter(self, wanted: str) -> bool:
        """Go to the value under this key of the object that begins here; False where it has none."""
        if self.peek() != b"{":
            return False
        for key in self.keys():
            if key == wanted:
                return True
            self.pass_over()
        return False

    def outline(self, without: Collection[tuple[str, ...]], not_finite: "Counter[str] | None") -> Any:
        if self.peek() != b"{":
            return parse(self.value(), where=self.where, not_finite=not_finite)
        found: dict[str, Any] = {}
        for key in self.keys():
            deeper = [keys[1:] for keys in without if keys[0] == key]
            if () in deeper:
                self.pass_over()
            elif deeper:
                found[key] = self.outline(deeper, not_finite)
            else:
                found[key] = parse(self.value(), where=self.where, not_finite=not_finite)
        return found

    def value(self) -> bytes:
        """The raw bytes of the value that begins here."""
        return b"".join(self._pieces(limit=MAX_DOCUMENT_BYTES))

    def pass_over(self) -> None:
        for _piece in self._pieces(limit=None):
            pass

    def _pieces(self, limit: int | None) -> Iterator[bytes]:
        first = self.peek()
        if not first:
            raise Unreadable("not JSON: the file is cut off", where=self.where)
        size = 0
        for piece in self._nested() if first in (b"[", b"{", b'"') else self._scalar():
            size += len(piece)
            if limit is not None and size > limit:
                raise Unreadable(f"more than {limit:,} bytes in one JSON value", where=self.where)
            yield piece

    def _scalar(self) -> Iterator[bytes]:
        while (found := _SCALAR_END.search(self.buffer, self.position)) is None:
            if len(self.buffer) - self.position > MAX_DIGITS:
                raise Unreadable("not JSON: a number without end", where=self.where)
            if not self._more():
                break
        end = found.start() if found else len(self.buffer)
        yield self._take(end)

    def _nested(self) -> Iterator[bytes]:
        depth, look_from = 0, self.position
        while True:
            for found in _STRUCTURE.finditer(self.buffer, look_from):
                start, end = found.span()
                token = self.buffer[start]
                if token == 0x22:
                    if found.group(1) is None:
                        look_from = start
                        break
                elif end - start == 1:
                    depth += 1 if token in b"[{" else -1
                if depth <= 0:
                    yield self._take(end)
                    return
            else:
                look_from = len(self.buffer)
            waiting = len(self.buffer) - look_from  # part of a string
            yield self._take(look_from)
            if waiting > MAX_DOCUMENT_BYTES:
                raise Unreadable(f"a string of more than {MAX_DOCUMENT_BYTES:,} bytes", where=self.where)
            if not self._more():
                raise Unreadable("not JSON: the file is cut off", where=self.where)
            look_from = self.position

    def _take(self, end: int) -> bytes:
        piece = self.buffer[self.position : end]
        self.position = end
        return piece

    def _more(self) -> bool:
        """Read on; what was passed is forgotten. As much again as is held, so that a long string costs linear time."""
        held = self.buffer[self.position :]
        chunk = self.stream.read(max(CHUNK_BYTES, len(held)))
        self.buffer, self.position = held + chunk, 0
        return bool(chunk)

    def _cut_or(self, message: str) -> str:
        return f"not JSON: {message}" if self.position < len(self.buffer) else "not JSON: the file is cut off"


def _kind(value: Any) -> str:
    return {dict: "an object", list: "an array", str: "a string", type(None): "null"}.get(type(value), "a number")


def number_of(value: Any) -> float | None:
    """A finite number, also one written as a string; None for everything else, truth values included."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            value = float(value) if len(value) < 50 else None
        except ValueError:
            return None
    if not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def count_of(value: Any) -> int | None:
    """A count of tokens or samples; None where it is unknown or cannot be one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None


def mapping(value: Any) -> dict[str, Any]:
    """`value` if it is an object, else an empty one: a field that others may leave out or set to null."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def time_of(value: Any) -> tuple[datetime | None, bool]:
    """(time in UTC, whether its zone had to be assumed) of RFC 3339 text, or of UNIX seconds; (None, False) else."""
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value.strip())
            return (found.replace(tzinfo=UTC), True) if found.tzinfo is None else (found.astimezone(UTC), False)
        except (ValueError, OverflowError):
            return None, False
    seconds = number_of(value)
    try:
        return (datetime.fromtimestamp(seconds, UTC), False) if seconds is not None else (None, False)
    except (ValueError, OverflowError, OSError):
        return None, False
