"""The backup's file: a tar in one zstd stream whose last member, MANIFEST.json, lists all others with size and SHA-256.

Reading is strict and never extracts: names are compared with what a backup may hold, only plain files are taken, and
nothing counts until the manifest at the end has matched every byte before it. Knows nothing of databases.
"""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import zstandard

FORMAT = 1
KIND = "strop backup"
MANIFEST = "MANIFEST.json"
DATABASE = "database.dump"
DRAFT = ".partial"  # what an archive is called until it is whole
FOLDERS = ("checkpoints", "batches", "corpora", "texts", "secrets")
CHUNK = 1 << 20
MAX_NAME = 500
MAX_MANIFEST = 1 << 28
MAX_MEMBERS = 2_000_000
ZSTD_LEVEL = 1  # weights hardly shrink, and a backup should not take the machine from its users


class BadArchive(ValueError):
    """The file is not a whole, untouched backup; the message says what is wrong with it."""


@dataclass(frozen=True, kw_only=True)
class Member:
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Contents:
    """A verified archive: what its manifest says."""

    facts: dict[str, Any]  # as the writer gave them
    members: dict[str, Member]

    @property
    def num_bytes(self) -> int:
        return sum(member.size for member in self.members.values())


class Writer:
    """Collects members; `finish` adds the manifest. Made by `new_archive`."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self.members: dict[str, Member] = {}
        self._tar = tar

    def add_file(self, name: str, path: Path) -> None:
        """Raises OSError when the file cannot be read whole."""
        with path.open("rb") as handle:
            self._add(name, handle, os.fstat(handle.fileno()).st_size)

    def add_bytes(self, name: str, data: bytes) -> None:
        self._add(name, io.BytesIO(data), len(data))

    def finish(self, facts: Mapping[str, Any]) -> None:
        members = {name: {"size": one.size, "sha256": one.sha256} for name, one in self.members.items()}
        body = {"kind": KIND, "format": FORMAT, **facts, "members": members}
        self._add(MANIFEST, *_sized(json.dumps(body, indent=1, sort_keys=True).encode()))

    def _add(self, name: str, handle: IO[bytes], size: int) -> None:
        if name in self.members:
            raise BadArchive(f"{name} is added twice")
        entry = tarfile.TarInfo(checked_name(name))
        entry.size, entry.mode = size, 0o600
        reader = _Hashing(handle)
        self._tar.addfile(entry, reader)
        self.members[name] = Member(size=size, sha256=reader.digest.hexdigest())


@contextmanager
def new_archive(target: Path) -> Iterator[Writer]:
    """A backup to fill, for its owner's eyes only; it appears at `target` whole or not at all."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}{DRAFT}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as raw:
            compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True)
            with (
                compressor.stream_writer(raw, closefd=False) as stream,
                tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar,
            ):
                yield Writer(tar)
            raw.flush()
            os.fsync(raw.fileno())
        os.rename(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def verify(file: IO[bytes]) -> Contents:
    """Read all of it, write nothing. Raises BadArchive."""
    return _walk(file, lambda name, size: None)


def unpack(file: IO[bytes], contents: Contents, place: Callable[[str], Path]) -> None:
    """Write every member of a verified archive to the path that `place` gives for its name.

    Raises BadArchive when the bytes are no longer those that were verified.
    """

    def open_target(name: str, size: int) -> IO[bytes] | None:
        if name == MANIFEST:
            return None
        if name not in contents.members:
            raise BadArchive(f"{name} was not there when the archive was verified")
        target = place(name)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb")

    if _walk(file, open_target) != contents:
        raise BadArchive("the archive changed while it was read")


def checked_name(name: str) -> str:
    """`name`, if it is one that a backup may hold. Raises BadArchive."""
    parts = name.split("/")
    is_plain = all(part not in ("", ".", "..") and part.isprintable() and "\\" not in part for part in parts)
    is_known = name in (MANIFEST, DATABASE) or (parts[0] in FOLDERS and len(parts) > 1)
    if not (is_plain and is_known) or len(name) > MAX_NAME:
        raise BadArchive(f"it names {name[:200]!r}, which no backup of ours holds")
    return name


def _walk(file: IO[bytes], open_target: Callable[[str, int], IO[bytes] | None]) -> Contents:
    """Read every member, into the target where there is one, and hold the manifest against what was read."""
    file.seek(0)
    found: dict[str, Member] = {}
    manifest = b""
    try:
        stream = _Inflating(file)
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for entry in tar:
                if manifest:
                    raise BadArchive(f"{entry.name[:200]!r} follows the manifest, which must come last")
                name = _accepted(entry, found)
                body = tar.extractfile(entry)
                assert body is not None
                if name == MANIFEST:
                    manifest = body.read(MAX_MANIFEST)
                else:
                    found[name] = _copy(body, open_target(name, entry.size), entry.size, name)
        if any(chunk.strip(b"\0") for chunk in iter(lambda: stream.read(CHUNK), b"")):
            raise BadArchive("something follows the archive's end")
    except (tarfile.TarError, zstandard.ZstdError, EOFError, UnicodeError, ValueError, OverflowError) as error:
        raise error if isinstance(error, BadArchive) else BadArchive(f"it is damaged: {error}") from error
    return _held_against(manifest, found)


def _accepted(entry: tarfile.TarInfo, found: Mapping[str, Member]) -> str:
    name = checked_name(entry.name)
    if entry.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or entry.issparse():
        raise BadArchive(f"{name} is not a plain file")
    if name in found or len(found) >= MAX_MEMBERS:
        raise BadArchive(f"{name} is there twice" if name in found else "it has too many members")
    return name


def _copy(body: IO[bytes], target: IO[bytes] | None, size: int, name: str) -> Member:
    digest, num_read = hashlib.sha256(), 0
    try:
        while chunk := body.read(CHUNK):
            digest.update(chunk)
            num_read += len(chunk)
            if target is not None:
                target.write(chunk)
        if target is not None:
            target.flush()
            os.fsync(target.fileno())
    finally:
        if target is not None:
            target.close()
    if num_read != size:
        raise BadArchive(f"{name} is cut short")
    return Member(size=size, sha256=digest.hexdigest())


def _held_against(manifest: bytes, found: dict[str, Member]) -> Contents:
    if not manifest:
        raise BadArchive("it ends before its manifest: the file is cut short or not a backup")
    try:
        facts = json.loads(manifest)
        listed = {name: Member(size=row["size"], sha256=row["sha256"]) for name, row in facts.pop("members").items()}
        kind, number = facts.pop("kind"), facts.pop("format")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadArchive(f"its manifest cannot be read: {error}") from error
    if (kind, number) != (KIND, FORMAT):
        raise BadArchive(f"it is a {kind} of format {number}; this Strop reads {KIND} of format {FORMAT}")
    if wrong := sorted(name for name in listed.keys() | found.keys() if listed.get(name) != found.get(name)):
        raise BadArchive(f"{wrong[0]} is not what the manifest says ({len(wrong)} members differ)")
    return Contents(facts=facts, members=listed)


def _sized(data: bytes) -> tuple[IO[bytes], int]:
    return io.BytesIO(data), len(data)


class _Inflating(io.RawIOBase):
    """Exactly one zstd frame, whole to its checksum; raises BadArchive for a cut one and for what follows it."""

    STEP = 4096  # bytes taken at once: what a hostile few may swell to stays bounded

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._ready = b""

    def read(self, size: int = -1) -> bytes:
        assert size > 0, "members are read piece by piece"
        found = [self._ready]
        length = len(self._ready)
        while length < size and (more := self._more()):
            found.append(more)
            length += len(more)
        data = b"".join(found)
        self._ready = data[size:]
        return data[:size]

    def _more(self) -> bytes:
        """The next inflated bytes; empty only at the frame's end."""
        while not self._frame.eof:
            taken = self._file.read(self.STEP)
            if not taken:
                raise BadArchive("it is cut short")
            if more := self._frame.decompress(taken):
                return more
        if self._frame.unused_data or self._file.read(1):
            raise BadArchive("something follows the archive's end")
        return b""


class _Hashing(io.RawIOBase):
    def __init__(self, handle: IO[bytes]) -> None:
        self.digest = hashlib.sha256()
        self._handle = handle

    def read(self, size: int = -1) -> bytes:
        data = self._handle.read(size)
        self.digest.update(data)
        return data
