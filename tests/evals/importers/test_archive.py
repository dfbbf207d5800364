"""Hostile and damaged zip archives (RELIABILITY 2.2): nothing is written, and every refusal says why."""

import io
import stat
import struct
import zipfile
import zlib

import pytest
import zstandard

from evals.importers import archive
from evals.importers.archive import Archive
from evals.importers.errors import Unreadable


def made(tmp_path, *members: tuple[str, bytes], method=zipfile.ZIP_DEFLATED):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in members:
            file.writestr(name, content)
    return path


def zstandard_zip(path, name: bytes, *frames: bytes, size=None, crc=None):
    """A zip of one member with method 93, whose frames are given one by one."""
    content = b"".join(frames)
    packed = b"".join(zstandard.compress(frame) for frame in frames)
    crc = zlib.crc32(content) if crc is None else crc
    fields = (20, 0, 93, 0, 0, crc, len(packed), len(content) if size is None else size, len(name), 0)
    local = struct.pack("<4s5H3I2H", b"PK\x03\x04", *fields) + name + packed
    central = struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 20, *fields, 0, 0, 0, 0, 0) + name
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 1, 1, len(central), len(local), 0)
    path.write_bytes(local + central + end)
    return path


def read(path) -> list[bytes]:
    with Archive(path) as found:
        return [found.read(member, 10**9) for member in found.members]


def test_plain_deflated_and_zstandard_members_of_several_frames_are_read(tmp_path):
    assert read(made(tmp_path, ("a", b"1" * 1000), ("b/c", b""))) == [b"1" * 1000, b""]
    assert read(made(tmp_path, ("a", b"12"), method=zipfile.ZIP_STORED)) == [b"12"]
    assert read(zstandard_zip(tmp_path / "z.zip", b"a", b"one" * 999, b"two", b"")) == [b"one" * 999 + b"two"]


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "a/../../b", "C:\\x", "a\\b", "\\\\host\\x"])
def test_names_that_lead_out_of_the_archive_are_refused(tmp_path, name):
    with pytest.raises(Unreadable, match="leads out of the archive"):
        Archive(made(tmp_path, (name, b"x")))


def test_a_name_with_a_nul_is_refused(tmp_path):
    path = made(tmp_path, ("a_b", b"x"))
    path.write_bytes(path.read_bytes().replace(b"a_b", b"a\0b"))
    with pytest.raises(Unreadable, match="leads out of the archive"):
        Archive(path)


def test_links_are_refused(tmp_path):
    path = tmp_path / "a.zip"
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(link, "/etc/passwd")
    with pytest.raises(Unreadable, match="a link"):
        Archive(path)


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    with pytest.raises(Unreadable, match="more than 200 times its size"):
        Archive(made(tmp_path, ("bomb", b"\0" * 40_000_000)))


def test_members_and_bytes_are_limited(tmp_path, monkeypatch):
    path = made(tmp_path, ("a", b"1" * 100), ("b", b"2"), ("c", b"3"))
    monkeypatch.setattr(archive, "MAX_TOTAL_BYTES", 50)
    with pytest.raises(Unreadable, match="102 bytes unpacked; at most 50"):
        Archive(path)
    monkeypatch.setattr(archive, "MAX_MEMBERS", 2)
    with pytest.raises(Unreadable, match="3 members; at most 2"):
        Archive(path)


def test_a_member_that_lies_about_its_size_is_refused(tmp_path):
    with pytest.raises(Unreadable, match="does not unpack to the 10 bytes"):
        read(zstandard_zip(tmp_path / "z.zip", b"a", b"x" * 1000, size=10))
    with pytest.raises(Unreadable, match="does not unpack to the 2,000 bytes"):
        read(zstandard_zip(tmp_path / "z.zip", b"a", b"x" * 1000, size=2000))


def test_a_checksum_that_differs_is_found(tmp_path):
    with pytest.raises(Unreadable, match="checksum"):
        read(zstandard_zip(tmp_path / "z.zip", b"a", b"x" * 1000, crc=7))


def test_unknown_methods_and_encryption_are_refused(tmp_path):
    with pytest.raises(Unreadable, match="compression method 14"):
        Archive(made(tmp_path, ("a", b"x"), method=zipfile.ZIP_LZMA))
    path = made(tmp_path, ("a", b"x"))
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(bytes(data))
    with pytest.raises(Unreadable, match="encrypted"):
        Archive(path)


def test_what_is_no_archive_says_how_much_of_it_is_whole(tmp_path):
    path = made(tmp_path, ("a", b"1"), ("b", b"2"))
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(Unreadable, match="2 of its members are whole"):
        Archive(path)
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(Unreadable, match="0 of its members"):
        Archive(tmp_path / "empty")


def test_members_of_one_name_are_all_there(tmp_path):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.writestr("a", b"1")
        with pytest.warns(UserWarning, match="Duplicate"):
            file.writestr("a", b"2")
    path = tmp_path / "a.zip"
    path.write_bytes(data.getvalue())
    with Archive(path) as found:
        assert [found.read(member, 10) for member in found.members] == [b"1", b"2"]
        assert found.read(found.last("a"), 10) == b"2"
