import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from evals.overlap import hashed
from rl_online.corpus.build import build_corpus, forget_build
from rl_online.corpus.errors import CorruptCorpus, UnusableSource
from rl_online.corpus.leaks import Problems
from rl_online.corpus.shards import open_corpus, read_shard
from tests.rl_online.corpus.making import build, code, parts_of, request, write_sources


def test_a_corpus_holds_every_document_once_and_counts_by_language(tmp_path):
    corpus = build(tmp_path)
    documents = {part.path: part.language for part in parts_of(corpus)}
    assert len(documents) == 12
    python = corpus.facts["languages"]["python"]
    assert python == {
        "documents": 4,
        "bytes": sum(len(code(number)) for number in (0, 3, 6, 9)),
        "tokens": sum(len(part.token_ids) for part in parts_of(corpus) if part.language == "python"),
        "heldout_documents": 0,
        "fim_pieces": 0,
        "dropped": {},
    }
    assert corpus.num_tokens == sum(row["tokens"] for row in corpus.facts["languages"].values())


def test_no_row_is_longer_than_asked_and_none_is_nearly_empty_but_the_last(tmp_path):
    corpus = build(tmp_path)
    rows = [row for number in range(len(corpus.shards)) for row in read_shard(corpus, number)]
    assert max(row.num_tokens for row in rows) <= 256
    assert sum(row.num_tokens for row in rows) / (256 * len(rows)) > 0.8


def test_copies_and_near_copies_are_left_out_and_counted(tmp_path):
    source = write_sources(tmp_path / "source", 3)
    (source / "z1.py").write_text(code(0))
    (source / "z2.py").write_text(code(0, 60))
    (source / "z3.py").write_text(code(0, 60) + "# one more line\n")
    corpus = build(tmp_path, source=source, shard_tokens=1 << 20)
    assert corpus.facts["dropped"] == {"copy": 1, "near_copy": 1}
    assert corpus.facts["languages"]["python"]["dropped"] == {"copy": 1, "near_copy": 1}


def test_a_document_that_holds_a_benchmark_problem_is_left_out(tmp_path):
    problem = " ".join(f"word{number}" for number in range(40))
    source = write_sources(tmp_path / "source", 3)
    (source / "leak.md").write_text(f"A nice exercise:\n\n{problem}\n")
    corpus = build(tmp_path, source=source, problems=[problem])
    assert corpus.facts["dropped"] == {"in_benchmark": 1}
    assert "leak.md" not in {part.path for part in parts_of(corpus)}


def test_only_the_languages_asked_for_are_taken(tmp_path):
    corpus = build(tmp_path, languages=("python",))
    assert {part.language for part in parts_of(corpus)} == {"python"}
    assert corpus.facts["dropped"] == {"not_asked_for": 8}


def test_whole_documents_are_held_out_of_each_language(tmp_path):
    corpus = build(tmp_path, source=write_sources(tmp_path / "source", 120), heldout=2, shard_tokens=1 << 20)
    trained, measured = (parts_of(corpus, heldout=which) for which in (False, True))
    assert measured and not {part.document for part in trained} & {part.document for part in measured}
    counts = {name: row["heldout_documents"] for name, row in corpus.facts["languages"].items()}
    assert sum(counts.values()) == len(measured) and max(counts.values()) <= 2


def test_equal_sources_make_equal_digests_and_another_recipe_another(tmp_path):
    one = build(tmp_path / "one")
    assert one.digest == build(tmp_path / "two").digest
    assert one.digest != build(tmp_path / "three", fim=0.5).digest


def test_a_build_that_stops_goes_on_and_ends_with_the_same_digest(tmp_path):
    whole = build(tmp_path / "whole")
    asked = request(tmp_path / "parts")
    made, calls = None, 0
    while made is None:
        made = build_corpus(asked, should_stop=lambda: True)
        calls += 1
    assert (made.digest, calls > 2) == (whole.digest, True)


def test_a_build_that_keeps_next_to_nothing_may_stop_after_so_many_documents(tmp_path, monkeypatch):
    monkeypatch.setattr("rl_online.corpus.build.SHARD_READ", 8)
    source = write_sources(tmp_path / "source", 4)
    for number in range(20):
        (source / f"photo{number:02}.jpg").write_bytes(b"\0")
    whole = build(tmp_path / "whole", source=source, shard_tokens=1 << 20)
    asked = request(tmp_path / "parts", source=source, shard_tokens=1 << 20)
    stops = 0
    while (made := build_corpus(asked, should_stop=lambda: True)) is None:
        stops += 1
    assert (stops, made.digest, made.facts["dropped"]) == (3, whole.digest, {"unknown_language": 20})


KILLED = """
import os, sys
from pathlib import Path
from rl_online.corpus.build import build_corpus
from tests.rl_online.corpus.making import request
left = int(sys.argv[3])
def crash(name):
    global left
    left -= name == sys.argv[2]
    if not left:
        os._exit(137)
build_corpus(request(Path(sys.argv[1])), crash=crash)
"""
POINTS = ["corpus.mid_shard 2", "corpus.before_commit 2", "corpus.between_shards 1", "corpus.before_rename 1"]


@pytest.mark.parametrize("at", POINTS)
def test_a_build_that_was_killed_goes_on_to_the_same_digest(tmp_path, at):
    whole = build(tmp_path / "whole")
    request(tmp_path / "killed")
    command = [sys.executable, "-c", KILLED, str(tmp_path / "killed"), *at.split()]
    paths = os.pathsep.join([os.getcwd(), os.path.join(os.getcwd(), "platform")])
    assert subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}).returncode == 137
    assert build(tmp_path / "killed").digest == whole.digest


def test_a_finished_build_asked_again_finds_its_corpus_until_it_is_forgotten(tmp_path):
    first = build(tmp_path)
    before = (first.folder / "MANIFEST.json").stat().st_mtime_ns
    assert build(tmp_path).digest == first.digest
    forget_build(tmp_path / "work")
    assert not (tmp_path / "work").exists() and (first.folder / "MANIFEST.json").stat().st_mtime_ns == before


def test_other_problems_make_a_build_begin_anew(tmp_path):
    asked = request(tmp_path)
    assert build_corpus(asked, should_stop=lambda: True) is None
    other = replace(asked, problems=Problems([hashed(code(11))]))
    corpus = build_corpus(other)
    assert corpus.facts["dropped"] == {"in_benchmark": 1}


def test_a_source_with_nothing_to_learn_is_refused_with_what_was_found(tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "photo.jpg").write_bytes(b"\0")
    with pytest.raises(UnusableSource, match=r"nothing in source can be trained on.*unknown_language"):
        build(tmp_path, source=tmp_path / "source")


def test_a_shard_with_a_changed_token_is_refused(tmp_path):
    corpus = build(tmp_path)
    file = corpus.folder / "shard-000000" / "tokens.safetensors"
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptCorpus, match="shard-000000"):
        read_shard(open_corpus(corpus.folder), 0)


def test_a_manifest_that_claims_other_counts_is_refused(tmp_path):
    corpus = build(tmp_path)
    file = corpus.folder / "MANIFEST.json"
    said = json.loads(file.read_text())
    said["facts"]["languages"]["python"]["documents"] = 99
    file.write_text(json.dumps(said))
    with pytest.raises(CorruptCorpus, match="does not match its digest"):
        open_corpus(corpus.folder)
