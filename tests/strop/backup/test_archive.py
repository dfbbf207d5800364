import io
import json
import random
import tarfile
from pathlib import Path

import pytest
import zstandard

from strop.backup import archive
from strop.backup.archive import BadArchive

FACTS = {"created_at": "2026-11-30T06:00:00Z"}
FILES = {
    "database.dump": b"rows" * 5000,
    "checkpoints/a/v000001/model.safetensors": bytes(random.Random(1).randbytes(70_000)),
    "checkpoints/a/v000001/MANIFEST.json": b"{}",
    "batches/abc/samples.jsonl": b"",
    "secrets/django": b"s" * 64,
}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    target = tmp_path / "out" / "backup.tar.zst"
    with archive.new_archive(target) as writer:
        for name, data in FILES.items():
            writer.add_bytes(name, data)
        writer.finish(FACTS)
    return target


def refusal(path: Path) -> str:
    with path.open("rb") as file, pytest.raises(BadArchive) as refused:
        archive.verify(file)
    return str(refused.value)


def hand_made(path: Path, *entries: tuple[tarfile.TarInfo, bytes], tail: bytes = b"") -> Path:
    """An archive as somebody else might write it; no manifest unless it is among the entries."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry, data in entries:
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    path.write_bytes(zstandard.compress(plain.getvalue()) + tail)
    return path


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


def test_what_was_put_in_comes_out(made: Path, tmp_path: Path):
    with made.open("rb") as file:
        contents = archive.verify(file)
        archive.unpack(file, contents, lambda name: tmp_path / "home" / name)
    assert contents.facts == FACTS
    assert {name: (tmp_path / "home" / name).read_bytes() for name in contents.members} == FILES
    assert made.stat().st_mode & 0o777 == 0o600


def test_verifying_writes_nothing(made: Path):
    before = sorted(path for path in made.parent.rglob("*"))
    with made.open("rb") as file:
        archive.verify(file)
    assert sorted(path for path in made.parent.rglob("*")) == before == [made]


def test_one_flipped_bit_anywhere_is_noticed(made: Path, tmp_path: Path):
    whole = made.read_bytes()
    chance = random.Random(7)
    for position in sorted(chance.sample(range(len(whole)), 150)):
        spoilt = bytearray(whole)
        spoilt[position] ^= 1 << chance.randrange(8)
        copy = tmp_path / "spoilt"
        copy.write_bytes(spoilt)
        assert refusal(copy), position


def test_every_truncation_is_noticed(made: Path, tmp_path: Path):
    whole = made.read_bytes()
    for length in [0, 1, 100, *range(1000, len(whole), 3001), len(whole) - 5, len(whole) - 1]:
        copy = tmp_path / "cut"
        copy.write_bytes(whole[:length])
        assert refusal(copy), length


def test_something_after_the_end_is_noticed(made: Path):
    with made.open("ab") as file:
        file.write(zstandard.compress(b"more"))
    assert refusal(made)


@pytest.mark.parametrize(
    "name",
    [
        "../home/evil",
        "/etc/passwd",
        "checkpoints/../../evil",
        "checkpoints/./a",
        "checkpoints//a",
        "checkpoints",
        "checkpoints/a\\..\\b",
        "checkpoints/a\nb",
        "run/up.lock",
        "data/postgres/postgresql.auto.conf",
        "database.dump/x",
        "checkpoints/" + "x" * 600,
    ],
)
def test_a_name_that_no_backup_holds_is_refused(tmp_path: Path, name: str):
    assert "which no backup of ours holds" in refusal(hand_made(tmp_path / "a", (entry(name), b"x")))


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_only_plain_files_are_taken(tmp_path: Path, kind: bytes):
    hostile = hand_made(tmp_path / "a", (entry("checkpoints/a", kind, "/etc/passwd"), b""))
    assert "not a plain file" in refusal(hostile)


def test_a_name_that_comes_twice_is_refused(tmp_path: Path):
    twice = [(entry("checkpoints/a"), b"1"), (entry("checkpoints/a"), b"2")]
    assert "there twice" in refusal(hand_made(tmp_path / "a", *twice))


def test_a_member_behind_the_manifest_is_refused(tmp_path: Path):
    manifest = json.dumps({"kind": archive.KIND, "format": 1, "members": {}}).encode()
    late = hand_made(tmp_path / "a", (entry("MANIFEST.json"), manifest), (entry("secrets/django"), b"mine"))
    assert "must come last" in refusal(late)


def test_a_member_that_the_manifest_does_not_know_is_refused(tmp_path: Path):
    manifest = json.dumps({"kind": archive.KIND, "format": 1, "members": {}}).encode()
    extra = hand_made(tmp_path / "a", (entry("secrets/django"), b"mine"), (entry("MANIFEST.json"), manifest))
    assert "is not what the manifest says" in refusal(extra)


@pytest.mark.parametrize("manifest", [b"", b"[]", b"{", b'{"kind": "x"}', b'{"kind": "x", "format": 1, "members": {}}'])
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, manifest: bytes):
    assert refusal(hand_made(tmp_path / "a", (entry("MANIFEST.json"), manifest)))


def test_an_archive_that_changes_between_verifying_and_unpacking_is_noticed(made: Path, tmp_path: Path):
    other = tmp_path / "other"
    with archive.new_archive(other) as writer:
        for name, data in FILES.items():
            writer.add_bytes(name, data.replace(b"rows", b"ROWS"))
        writer.finish(FACTS)
    with made.open("rb") as file, other.open("rb") as changed:
        contents = archive.verify(file)
        with pytest.raises(BadArchive, match="changed while it was read"):
            archive.unpack(changed, contents, lambda name: tmp_path / "home" / name)


def test_a_backup_that_fails_half_way_leaves_nothing(tmp_path: Path):
    with pytest.raises(OSError), archive.new_archive(tmp_path / "b") as writer:
        writer.add_bytes("database.dump", b"x")
        writer.add_file("checkpoints/gone", tmp_path / "gone")
    assert list(tmp_path.iterdir()) == []
