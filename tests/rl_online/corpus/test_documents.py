import gzip
import json
import os

import pytest
import zstandard

from rl_online.corpus import documents
from rl_online.corpus.documents import read_documents
from rl_online.corpus.errors import UnusableSource


def found(source, **options):
    return [(one.path, one.language, one.reason) for one in read_documents(source, **options)]


def write(root, files):
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return root


def test_files_come_in_the_order_of_their_names_with_their_language(tmp_path):
    write(tmp_path, {"b.py": "x = 1", "a/z.md": "# a", "a/b/c.c": "int x;", "a.rs": "fn f() {}", "Makefile": "all:"})
    assert found(tmp_path) == [
        ("Makefile", "makefile", ""),
        ("a/b/c.c", "c", ""),
        ("a/z.md", "markdown", ""),
        ("a.rs", "rust", ""),
        ("b.py", "python", ""),
    ]


def test_what_is_no_document_is_passed_on_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "MAX_BYTES", 100)
    write(
        tmp_path,
        {
            "binary.py": b"x\0y",
            "cut.py": b"\xff\xfe x",
            "empty.py": " \n",
            "long.py": "x" * 101,
            "data.bin": "x",
            "more.zip": "PK",
            "id_rsa": "x",
            "key.md": "AKIA" + "A" * 16,
            ".git/config": "x",
        },
    )
    assert {path: reason for path, _, reason in found(tmp_path)} == {
        "binary.py": "binary",
        "cut.py": "undecodable",
        "empty.py": "empty",
        "long.py": "too_large",
        "data.bin": "unknown_language",
        "more.zip": "archive",
        "id_rsa": "secret",
        "key.md": "secret",
        ".git": "ignored_folder",
    }


def test_a_private_key_in_a_file_of_any_name_is_a_secret(tmp_path):
    write(tmp_path, {"notes.txt": "-----BEGIN OPENSSH PRIVATE KEY-----\nabc"})
    assert found(tmp_path) == [("notes.txt", "text", "secret")]


def test_links_and_pipes_are_not_followed(tmp_path):
    outside = write(tmp_path / "outside", {"secret.py": "x = 1"})
    inside = write(tmp_path / "inside", {"a.py": "y = 2"})
    (inside / "link.py").symlink_to(outside / "secret.py")
    (inside / "folder").symlink_to(outside)
    (inside / "loop").symlink_to(inside)
    os.mkfifo(inside / "pipe.py")
    assert found(inside) == [
        ("a.py", "python", ""),
        ("folder", "", "link"),
        ("link.py", "python", "link"),
        ("loop", "", "link"),
        ("pipe.py", "python", "no_file"),
    ]


def test_a_source_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(UnusableSource, match="is no link"):
        found(tmp_path / "link")


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
def test_records_are_read_line_by_line_however_they_are_packed(tmp_path, pack):
    lines = [
        {"text": "x = 1", "language": "Python", "id": 7},
        {"text": "int x;", "path": "src/a.cpp"},
        {"text": "plain words"},
        {"text": "x", "lang": "klingon"},
    ]
    ending = {bytes: "", gzip.compress: ".gz", zstandard.compress: ".zst"}[pack]
    file = tmp_path / f"r.jsonl{ending}"
    file.write_bytes(pack("".join(json.dumps(line) + "\n" for line in lines).encode() + b"{broken\n[1]\n"))
    name = file.name
    assert found(file) == [
        (f"{name}:1", "python", ""),
        (f"{name}:2", "c++", ""),
        (f"{name}:3", "text", ""),
        (f"{name}:4", "", "unknown_language"),
        (f"{name}:5", "", "no_record"),
        (f"{name}:6", "", "no_record"),
    ]


def test_a_line_that_is_too_long_is_one_that_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "MAX_BYTES", 64)
    rows = [json.dumps({"text": "x" * length}) for length in (10, 500, 20)]
    (tmp_path / "r.jsonl").write_text("\n".join(rows))
    assert [reason for _, _, reason in found(tmp_path / "r.jsonl")] == ["", "too_large", ""]


def test_a_file_that_inflates_beyond_measure_is_given_up_where_it_does(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "SMALL_BYTES", 4096)
    (tmp_path / "bomb.jsonl.gz").write_bytes(
        gzip.compress(b'{"text": "first"}\n' + b"\n" * 100_000 + b'{"text": "last"}')
    )
    assert [reason for _, _, reason in found(tmp_path / "bomb.jsonl.gz")] == ["", "damaged"]


def test_a_damaged_packed_file_gives_what_is_whole_before_the_damage(tmp_path):
    packed = gzip.compress(b'{"text": "one"}\n' + os.urandom(4000).hex().encode())
    (tmp_path / "r.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    assert [reason for _, _, reason in found(tmp_path / "r.jsonl.gz")] == ["", "damaged"]


def test_reading_goes_on_behind_any_place(tmp_path):
    write(
        tmp_path, {"a/one.py": "x = 1", "a.py": "y = 2", "b/r.jsonl": '{"text": "1"}\n{"text": "2"}\n', "c.md": "# c"}
    )
    everything = list(read_documents(tmp_path))
    for number, one in enumerate(everything):
        assert list(read_documents(tmp_path, after=one.place)) == everything[number + 1 :]


def test_a_name_that_is_no_text_is_read_like_another(tmp_path):
    (tmp_path / os.fsdecode(b"\xff.py")).write_text("x = 1")
    assert found(tmp_path) == [("\\xff.py", "python", "")]
