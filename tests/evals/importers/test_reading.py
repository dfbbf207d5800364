"""JSON of any size and almost JSON."""

import io
import json
from collections import Counter

import pytest

from evals.importers import reading
from evals.importers.errors import Unreadable

DOCUMENT = {"a": 1, "b": [{"x": ']}"\\'}, [], "s", 1.5, None], "c": {"d": [1, 2], "z": 3}, "e": "t\u2028"}


@pytest.fixture(params=[1, 3, 64, 256 * 1024], ids="chunks of {}".format)
def chunks(request, monkeypatch):
    monkeypatch.setattr(reading, "CHUNK_BYTES", request.param)


@pytest.fixture(params=[None, 2], ids=["on one line", "indented"])
def path(request, tmp_path):
    found = tmp_path / "x.json"
    found.write_text(json.dumps(DOCUMENT, indent=request.param))
    return found


def test_members_come_one_by_one_whatever_the_chunks(chunks, path):
    with path.open("rb") as file:
        found = list(reading.members(file, where="x", apart={"b"}, skip={"c"}))
    assert [(key, json.loads(raw)) for key, raw in found] == [
        ("a", 1), *[("b", value) for value in DOCUMENT["b"]], ("e", DOCUMENT["e"]),
    ]  # fmt: skip


def test_an_outline_leaves_out_what_it_is_told(chunks, path):
    assert reading.outline(path, without=[("c", "d"), ("b",)]) == {"a": 1, "c": {"z": 3}, "e": DOCUMENT["e"]}


def test_an_array_deep_inside_is_streamed(chunks, path):
    assert list(reading.elements_at(path, "c", "d")) == [1, 2]
    assert list(reading.elements_at(path, "nothing", "here")) == []


def test_nan_and_infinities_become_none_and_are_counted():
    counted = Counter()
    assert reading.parse(b'{"a": NaN, "b": [-Infinity, 1e400], "c": 1}', not_finite=counted) == {
        "a": None, "b": [None, None], "c": 1,
    }  # fmt: skip
    assert counted == {"NaN": 1, "-Infinity": 1, "Infinity": 1}


@pytest.mark.parametrize(
    "data", [b"{", b'{"a"', b'{"a": 1', b"\xff\xfe", b"[" * 100_000, b'{"a":' * 5000, b"1" * 5000, b'"\\ud83d', b"\0"]
)
def test_what_is_no_json_is_unreadable(data, tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(data)
    with pytest.raises(Unreadable):
        reading.document(path)
    with pytest.raises(Unreadable), path.open("rb") as file:
        list(reading.members(file, where="x"))


def test_one_value_has_a_limit(monkeypatch):
    monkeypatch.setattr(reading, "MAX_DOCUMENT_BYTES", 1000)
    with pytest.raises(Unreadable, match="more than 1,000 bytes"):
        list(reading.members(io.BytesIO(b'{"a": "' + b"x" * 2000 + b'"}'), where="x"))
    assert list(reading.members(io.BytesIO(b'{"a": "' + b"x" * 900 + b'", "b": 1}'), where="x", skip={"a"})) == [
        ("b", b"1")
    ]


def test_a_long_value_that_is_skipped_needs_no_memory_of_its_own():
    body = b'{"a": [' + b'{"t": "' + b"y" * 1000 + b'"},' * 5 + b"1" + b'], "b": 2}'
    body = body.replace(b'"},"},"},"},"},', b'"},')
    assert [key for key, _ in reading.members(io.BytesIO(body), where="x", skip={"a"})] == ["b"]


def test_lines_end_at_newlines_only(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes('\ufeff{"a": "\u2028\u0085"}\r\n\n{"a": 2}'.encode())
    assert [(line, record["a"]) for line, record in reading.records(path)] == [(1, "\u2028\u0085"), (3, 2)]
