"""The documents of a folder of files, or of files with a record in each line: one after the other, never all at once.

The order is that of the names' bytes, folder by folder, so equal trees are read equally and a reader that was killed
goes on after a place. Nothing is written and no link is followed. What is no document is passed on with the reason.
A record is a JSON object with its `text`, and perhaps its `language` (or `lang`) and `path`, in a `.jsonl` file that
may be packed by gzip or Zstandard; zip and tar archives are left alone.
"""

import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import msgspec
import zstandard

from rl_online.corpus.errors import UnusableSource
from rl_online.corpus.languages import language_named, language_of_file
from rl_online.corpus.screening import decoded, holds_secret, is_secret_name

MAX_BYTES = 1 << 20  # of a document: longer files are data or generated, seldom written
MAX_PACKED_RATIO = 200  # inflated to packed, of files beyond SMALL_BYTES
SMALL_BYTES = 16 << 20
MAX_WINDOW_BYTES = 128 << 20  # that a Zstandard frame may ask for
RECORDS = (".jsonl", ".jsonl.gz", ".jsonl.zst")
ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.zst", ".tar.xz", ".7z", ".rar", ".whl", ".jar")
IGNORED_FOLDERS = frozenset({b".git", b".hg", b".svn", b".venv", b"__pycache__", b"node_modules"})

Place = tuple[bytes, int]  # (path from the root, line from 1; 0 for a whole file): where a reader is


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A document, or what is none."""

    place: Place
    path: str  # readable, from the root; of a record `file:line`
    language: str  # empty where it is unknown
    text: str = ""
    reason: str = ""  # why it is no document; empty: it is one

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class Record(msgspec.Struct):
    """What is taken of a line; other fields are passed over."""

    text: str
    language: str | None = None
    lang: str | None = None
    path: str | None = None


def read_documents(source: Path, *, after: Place | None = None) -> Iterator[Found]:
    """All there is in `source`, from behind `after`. Raises UnusableSource for what is neither folder nor records."""
    if source.is_symlink() or not (source.is_dir() or source.is_file()):
        raise UnusableSource(f"{source.name} is no folder and no file; name one that is there and is no link")
    if source.is_file():
        if not source.name.lower().endswith(RECORDS):
            raise UnusableSource(f"{source.name} is no file of records; give a folder, or one of {', '.join(RECORDS)}")
        yield from _records(source, os.fsencode(source.name), after=after)
        return
    for path, reason in _files(os.fsencode(source), after=after and after[0]):
        yield from _read(Path(os.fsdecode(os.path.join(os.fsencode(source), path))), path, reason, after=after)


def _files(root: bytes, *, after: bytes | None) -> Iterator[tuple[bytes, str]]:
    """(path from the root, why it is not read or "") of all that is no folder, and of folders that are passed over."""
    bound = after.split(b"/") if after is not None else None
    waiting: list[Iterator[bytes]] = [_names(root)]
    parents: list[list[bytes]] = [[]]
    while waiting:
        name = next(waiting[-1], None)
        if name is None:
            waiting.pop()
            parents.pop()
            continue
        parts = [*parents[-1], name]
        if bound is not None and parts < bound[: len(parts)]:
            continue
        path = b"/".join(parts)
        kind = os.lstat(os.path.join(root, path)).st_mode
        if stat.S_ISDIR(kind) and name not in IGNORED_FOLDERS:
            waiting.append(_names(os.path.join(root, path)))
            parents.append(parts)
        elif stat.S_ISDIR(kind):
            yield path, "ignored_folder"
        elif stat.S_ISLNK(kind):
            yield path, "link"
        else:
            yield path, "" if stat.S_ISREG(kind) else "no_file"


def _names(folder: bytes) -> Iterator[bytes]:
    return iter(sorted(os.listdir(folder)))


def _read(file: Path, path: bytes, reason: str, *, after: Place | None) -> Iterator[Found]:
    name = _readable(path)
    if not reason and name.lower().endswith(RECORDS):
        yield from _records(file, path, after=after)
        return
    if after is not None and path == after[0]:
        return
    language = language_of_file(name) or ""
    text = ""
    if not reason:
        reason = _refused_name(name, language)
    if not reason:
        text, reason = _text_of(file)
    yield _screened(Found(place=(path, 0), path=name, language=language, text=text, reason=reason))


def _refused_name(name: str, language: str) -> str:
    if is_secret_name(name.rpartition("/")[2]):
        return "secret"
    if name.lower().endswith(ARCHIVES):
        return "archive"
    return "" if language else "unknown_language"


def _text_of(file: Path) -> tuple[str, str]:
    try:
        with _opened(file) as handle:
            data = handle.read(MAX_BYTES + 1)
    except OSError:
        return "", "unreadable"
    return ("", "too_large") if len(data) > MAX_BYTES else decoded(data)


def _opened(file: Path) -> IO[bytes]:
    """Never through a link, and never waiting for a pipe that took the file's place since it was looked at."""
    handle = os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    if not stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
        handle.close()
        raise OSError(f"{file} is no longer a file")
    return handle


def _records(file: Path, path: bytes, *, after: Place | None) -> Iterator[Found]:
    done = after[1] if after is not None and after[0] == path else 0
    name = _readable(path)
    number = done
    try:
        with _opened(file) as packed:
            for number, line in enumerate(_lines(packed, name), 1):
                if number > done and line != b"":
                    yield _record(line, (path, number), f"{name}:{number}")
    except (OSError, EOFError, zlib.error, zstandard.ZstdError):
        yield Found(place=(path, number + 1), path=name, language="", reason="damaged")


def _lines(packed: IO[bytes], name: str) -> Iterator[bytes | None]:
    """Each line without its end, blank ones empty; None for one that is too long.

    Raises OSError for what inflates beyond measure.
    """
    size = os.fstat(packed.fileno()).st_size
    lines = _unpacked(packed, name.lower())
    num_bytes, is_cut = 0, False
    while line := lines.readline(MAX_BYTES):
        num_bytes += len(line)
        if num_bytes > max(SMALL_BYTES, MAX_PACKED_RATIO * size):
            raise OSError(f"{name} inflates to more than {MAX_PACKED_RATIO} times its size")
        is_whole = line.endswith(b"\n")
        if is_cut or (not is_whole and len(line) == MAX_BYTES):
            if not is_cut:
                yield None
            is_cut = not is_whole
        else:
            yield line.strip()


def _unpacked(packed: IO[bytes], name: str) -> IO[bytes]:
    if name.endswith(".gz"):
        return cast(IO[bytes], gzip.GzipFile(fileobj=packed))
    if name.endswith(".zst"):
        reader = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES).stream_reader(
            packed, read_across_frames=True
        )
        return io.BufferedReader(cast(io.RawIOBase, reader))
    return packed


def _record(line: bytes | None, place: Place, path: str) -> Found:
    if line is None:
        return Found(place=place, path=path, language="", reason="too_large")
    try:
        record = msgspec.json.decode(line, type=Record)
        text, reason = decoded(record.text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return Found(place=place, path=path, language="", reason="no_record")
    named = record.language or record.lang
    language = language_named(named) if named else language_of_file(record.path) if record.path else "text"
    if not reason and not language:
        reason = "unknown_language"
    return _screened(Found(place=place, path=path, language=language or "", text=text, reason=reason))


def _screened(found: Found) -> Found:
    if not found.reason and holds_secret(found.text):
        return Found(place=found.place, path=found.path, language=found.language, reason="secret")
    return found


def _readable(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
