"""One door for zip archives that others wrote: read member by member, never written to disk.

Stored, deflated and Zstandard members (method 93, of several frames, which Python before 3.14 cannot read). Every name,
size, count and checksum is checked before or while a member is read; what does not fit is `Unreadable`.
"""

import io
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, cast

import zstandard

from evals.importers.errors import Unreadable

MAX_MEMBERS = 500_000  # an Inspect log has one for each sample
MAX_MEMBER_BYTES = 8 * 1024**3  # inflated
MAX_TOTAL_BYTES = 256 * 1024**3
MAX_RATIO = 200  # inflated to packed, of members beyond SMALL_BYTES
SMALL_BYTES = 16 * 1024**2  # repetitive logs of ordinary size may well shrink more
MAX_WINDOW_BYTES = 256 * 1024**2  # that a Zstandard frame may ask for
ZSTANDARD = 93
METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, ZSTANDARD}
ENCRYPTED = 0x1
LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_DRIVE = re.compile(r"^[A-Za-z]:")


class Archive:
    """An open zip archive. Members of one name are all there, in the order of the directory."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        try:
            self._file = path.open("rb")
        except (OSError, ValueError) as error:
            raise Unreadable(f"cannot be opened: {error}", where=self.name) from None
        try:
            self._zip = zipfile.ZipFile(self._file)
            self.members: Sequence[zipfile.ZipInfo] = self._zip.infolist()
            self._check()
        except Unreadable:
            self._file.close()
            raise
        except (zipfile.BadZipFile, OSError, ValueError, struct.error, NotImplementedError, EOFError) as error:
            found = _complete_members(self._file)
            self._file.close()
            raise Unreadable(
                f"the archive is cut off or damaged ({error}); {found} of its members are whole. "
                "Copy it again, or wait until its writer has finished",
                where=self.name,
            ) from None

    def __enter__(self) -> "Archive":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._zip.close()
        self._file.close()

    def last(self, name: str) -> zipfile.ZipInfo | None:
        """The member of that name; of several, the one written last, as every zip reader takes it."""
        return self._zip.NameToInfo.get(name)

    def read(self, member: zipfile.ZipInfo, limit: int) -> bytes:
        """All its bytes. Raises Unreadable beyond `limit`."""
        if member.file_size > limit:
            raise Unreadable(f"{member.file_size:,} bytes; at most {limit:,} are read", where=self.where(member))
        with self.open(member) as stream:
            return stream.read()

    def open(self, member: zipfile.ZipInfo) -> IO[bytes]:
        """A stream of its bytes, which raises Unreadable where they are not what the directory says."""
        return io.BufferedReader(_Member(self._raw(member), member, self.where(member)), 256 * 1024)  # type: ignore[type-var]

    def where(self, member: zipfile.ZipInfo) -> str:
        return f"{self.name}!{member.filename}"

    def _raw(self, member: zipfile.ZipInfo) -> IO[bytes]:
        if member.compress_type != ZSTANDARD:
            try:
                return self._zip.open(member)
            except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, struct.error, EOFError) as error:
                raise Unreadable(f"cannot be read: {error}", where=self.where(member)) from None
        packed = cast(IO[bytes], _Span(self._file, self._start_of(member), member.compress_size))
        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
        return decompressor.stream_reader(packed, read_across_frames=True)

    def _start_of(self, member: zipfile.ZipInfo) -> int:
        self._file.seek(member.header_offset)
        header = self._file.read(LOCAL_HEADER.size)
        if len(header) < LOCAL_HEADER.size or header[:4] != b"PK\x03\x04":
            raise Unreadable("its own header is missing or cut off", where=self.where(member))
        fields = LOCAL_HEADER.unpack(header)
        return member.header_offset + LOCAL_HEADER.size + fields[9] + fields[10]

    def _check(self) -> None:
        if len(self.members) > MAX_MEMBERS:
            raise Unreadable(f"{len(self.members):,} members; at most {MAX_MEMBERS:,} are read", where=self.name)
        total = sum(member.file_size for member in self.members)
        if total > MAX_TOTAL_BYTES:
            raise Unreadable(f"{total:,} bytes unpacked; at most {MAX_TOTAL_BYTES:,} are read", where=self.name)
        for member in self.members:
            if fault := _fault(member):
                raise Unreadable(fault, where=self.where(member)[:300])


def _fault(member: zipfile.ZipInfo) -> str:
    name = member.orig_filename
    if "\0" in name or "\\" in name or name.startswith("/") or _DRIVE.match(name) or ".." in name.split("/"):
        return "a name that leads out of the archive"
    if stat.S_ISLNK(member.external_attr >> 16):
        return "a link; only plain files are read"
    if member.flag_bits & ENCRYPTED:
        return "it is encrypted; write it without a password"
    if member.compress_type not in METHODS:
        return f"compression method {member.compress_type}; stored, deflate (8) and Zstandard (93) are read"
    if member.file_size > MAX_MEMBER_BYTES:
        return f"{member.file_size:,} bytes unpacked; at most {MAX_MEMBER_BYTES:,} are read"
    if member.file_size > SMALL_BYTES and member.file_size > MAX_RATIO * max(member.compress_size, 1):
        return f"it unpacks to more than {MAX_RATIO} times its size"
    return ""


class _Member(io.RawIOBase):
    """Passes a member's bytes on while it counts and sums them."""

    def __init__(self, raw: IO[bytes], member: zipfile.ZipInfo, where: str) -> None:
        self._raw, self._member, self._where = raw, member, where
        self._size, self._crc = 0, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        try:
            chunk = self._raw.read(len(buffer))
        except (zipfile.BadZipFile, zlib.error, zstandard.ZstdError, EOFError, OSError, ValueError) as error:
            raise Unreadable(f"damaged: {error}", where=self._where) from None
        self._size += len(chunk)
        self._crc = zlib.crc32(chunk, self._crc)
        if self._size > self._member.file_size or (not chunk and self._size < self._member.file_size):
            raise Unreadable(f"it does not unpack to the {self._member.file_size:,} bytes it states", where=self._where)
        if not chunk and self._crc != self._member.CRC:
            raise Unreadable("damaged: its checksum differs", where=self._where)
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class _Span(io.RawIOBase):
    """A part of a file, with a place of its own in it."""

    def __init__(self, file: IO[bytes], start: int, size: int) -> None:
        self._file, self._position, self._left = file, start, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        self._file.seek(self._position)
        chunk = self._file.read(min(len(buffer), self._left))
        self._position += len(chunk)
        self._left -= len(chunk)
        buffer[: len(chunk)] = chunk
        return len(chunk)


def _complete_members(file: IO[bytes]) -> int:
    """How many members stand whole at the beginning of an archive without a directory."""
    size = file.seek(0, os.SEEK_END)
    position, found = 0, 0
    while found < MAX_MEMBERS:
        file.seek(position)
        header = file.read(LOCAL_HEADER.size)
        if len(header) < LOCAL_HEADER.size or header[:4] != b"PK\x03\x04":
            return found
        fields = LOCAL_HEADER.unpack(header)
        position += LOCAL_HEADER.size + fields[9] + fields[10] + fields[7]
        if position > size:
            return found
        found += 1
    return found
