"""Exports: every row once at any chunk's edge, read back as it was stored, in constant memory, for members only."""

import asyncio
import csv
import io
import itertools
import json
import re
import threading
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.test import AsyncClient

from console import exports
from console.exports import Chunk, Export, next_size, stream
from console.keyset import Cursor
from console.lists.turns import TURNS
from console.views.lists import EXPORTED
from registry.errors import InvalidInput
from registry.tenancy import tenant
from tests.console import evaluate, factories

AT = datetime(2026, 11, 30, 6, tzinfo=UTC)
AWKWARD = [
    "plain",
    "two\nlines",
    "cr\r\nlf",
    'quote " and, comma',
    "'",
    "",
    "=1+1",
    "\u202e",
    "x" * 10_000,
    "日本",
]


def export_of(rows, columns=("id", "text", "n")):
    """The rows as if they came from a table, newest first."""

    def read(place, size):
        start = 0 if place is None else place.id
        more = start + size < len(rows)
        return Chunk(rows=rows[start : start + size], next=Cursor(at=AT, id=start + size) if more else None)

    return Export(name="rows", columns=columns, read=read)


async def collect(response) -> bytes:
    return b"".join([chunk async for chunk in response.streaming_content])


def text_of(export, format):
    return asyncio.run(collect(stream(export, format))).decode()


def read_csv(text):
    """Rows of texts; None where the field was empty without quotes, which is what an unknown value looks like."""
    return list(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("extra", [-1, 0, 1])
@pytest.mark.parametrize("chunks", [1, 2, 3])
@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_no_row_is_lost_or_doubled_at_the_edge_of_a_chunk(monkeypatch, chunks, extra, format):
    monkeypatch.setattr(exports, "FIRST_ROWS", 4)
    monkeypatch.setattr(exports, "MOST_ROWS", 4)
    rows = [(i, AWKWARD[i % len(AWKWARD)], i / 4) for i in range(4 * chunks + extra)]
    text = text_of(export_of(rows), format)
    if format == "csv":
        header, *found = read_csv(text)
        assert header == ["id", "text", "n"]
        assert [(int(a), b, float(c)) for a, b, c in found] == rows
    else:
        assert [tuple(json.loads(line).values()) for line in text.split("\n")[:-1]] == rows


def test_an_export_of_nothing_is_its_header():
    assert text_of(export_of([]), "csv") == '"id","text","n"\r\n' and text_of(export_of([]), "jsonl") == ""


def test_unknown_differs_from_empty():
    assert text_of(export_of([(1, None, None), (2, "", 0)]), "csv").split("\r\n")[1:3] == ["1,,", '2,"",0']
    assert json.loads(text_of(export_of([(1, None, None)]), "jsonl")) == {"id": 1, "text": None, "n": None}


def test_numbers_and_times_keep_every_digit():
    text = text_of(export_of([(1, AT, 0.1 + 0.2), (2, {"a": [1]}, -0.0), (3, True, 1e-9)]), "csv")
    assert read_csv(text)[1:] == [
        ["1", "2026-11-30T06:00:00+00:00", "0.30000000000000004"], ["2", '{"a": [1]}', "-0.0"], ["3", "true", "1e-09"],
    ]  # fmt: skip


def test_money_keeps_every_digit_and_is_a_number_in_csv():
    cost = Decimal("0.00000012345678901234567890")
    assert text_of(export_of([(1, None, cost)]), "csv").split("\r\n")[1] == "1,,0.00000012345678901234567890"
    assert Decimal(json.loads(text_of(export_of([(1, None, cost)]), "jsonl"))["n"]) == cost


def test_chunks_shrink_for_long_rows_and_grow_for_short_ones():
    assert next_size(100, 100) == exports.MOST_ROWS and next_size(100_000_000, 100) == 2 and next_size(10**9, 1) == 1
    assert next_size(0, 0) >= 1


def test_memory_does_not_grow_with_the_number_of_rows():
    def read(place, size):
        start = 0 if place is None else place.id
        rows = [(i, "x" * 2000, i) for i in range(start, min(start + size, 40_000))]
        return Chunk(rows=rows, next=Cursor(at=AT, id=start + size) if start + size < 40_000 else None)

    async def drain():
        num_bytes = 0
        async for chunk in stream(Export(name="x", columns=("a", "b", "c"), read=read), "csv").streaming_content:
            num_bytes += len(chunk)
        return num_bytes

    tracemalloc.start()
    num_bytes = asyncio.run(drain())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert num_bytes > 80_000_000 and peak < 25_000_000


def test_an_unknown_format_is_refused():
    with pytest.raises(InvalidInput, match="choose csv or jsonl"):
        stream(export_of([]), "xlsx")


# --- From the database, through the address ---


@pytest.fixture
def download(transactional_db, project, member):
    """download(path, role) -> status, the file's name and its text."""

    people = {}

    def get(path, role="viewer"):
        user = people.get(role) or people.setdefault(role, member(project, role))

        async def fetch():
            client = AsyncClient()
            await client.aforce_login(user)
            response = await client.get(path)
            body = (await collect(response)).decode() if response.streaming else ""
            return response.status_code, response.get("Content-Disposition", response.get("Location", "")), body

        return asyncio.run(fetch())

    return get


def test_the_turns_that_match_are_exported_as_they_were_stored(download, project, monkeypatch):
    monkeypatch.setattr(exports, "FIRST_ROWS", 3)
    monkeypatch.setattr(exports, "MOST_ROWS", 3)
    with tenant(project.id):
        factories.make_policy()
        at = factories.timezone.now()
        for i, text in enumerate(AWKWARD):
            factories.make_turn(f"s{i}", completion=text, asked=text, at=at - timedelta(minutes=i // 3))
        factories.make_turn("other", outcome="reject")
    status, name, body = download("/p/editor/export/turns?q=outcome:accept&format=jsonl&range=1d")
    assert status == 200 and 'filename="editor-turns.jsonl"' in name
    rows = {row["session"]: row for row in map(json.loads, body.split("\n")[:-1])}
    assert {name: row["completion"] for name, row in rows.items()} == {f"s{i}": t for i, t in enumerate(AWKWARD)}
    assert rows["s3"]["messages"] == [{"role": "user", "content": AWKWARD[3]}]
    assert rows["s0"]["outcome"] == "accept" and rows["s0"]["checkpoint"] == "editor@1"


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_a_read_that_takes_too_long_is_stopped_and_the_file_says_so(download, project, monkeypatch, caplog, format):
    monkeypatch.setattr(exports, "FIRST_ROWS", 2)
    monkeypatch.setattr(exports, "MOST_ROWS", 2)
    monkeypatch.setattr(exports, "READ_S", 0.3)
    with tenant(project.id):
        factories.make_policy()
        for i in range(5):
            factories.make_turn(f"s{i}")
    values, num_chunks = TURNS.export.values, itertools.count(1)

    def slow_from_the_second_chunk_on(found):
        if next(num_chunks) > 1:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_sleep(20)")
        return values(found)

    monkeypatch.setitem(
        EXPORTED, "turns", replace(TURNS, export=replace(TURNS.export, values=slow_from_the_second_chunk_on))
    )
    status, _, body = download(f"/p/editor/export/turns?format={format}")
    assert status == 200
    if format == "csv":
        header, *rows, last = read_csv(body)
        assert [len(row) for row in rows] == [len(header)] * 2 and last == [exports.CUT]
    else:
        *rows, last = map(json.loads, body.split("\n")[:-1])
        assert len(rows) == 2 and last == {"error": {"code": "cut_short", "message": exports.CUT}}
    assert "the export editor-turns is cut short" in caplog.text


def test_the_list_says_that_its_values_are_exact_beside_the_files(as_engineer, project):
    text = as_engineer.get("/p/editor/turns").content.decode()
    assert "import CSV as text" in text


def test_sessions_and_signals_are_exported_too(download, project):
    with tenant(project.id):
        factories.make_policy()
        turn = factories.make_turn("s", edited_to='say "hi"\nthere')
    _, _, sessions = download("/p/editor/export/sessions?format=csv")
    header, row = read_csv(sessions)
    found = dict(zip(header, row, strict=True))
    assert found["session"] == "s" and json.loads(found["outcomes"]) == {"accept": 1}
    _, _, signals = download("/p/editor/export/signals?q=kind:edit&format=csv", "owner")
    header, row = read_csv(signals)
    found = dict(zip(header, row, strict=True))
    assert found["text"] == 'say "hi"\nthere' and found["turn"] == turn.turn_id and found["state"] == "joined"


def test_an_export_holds_rows_of_its_own_project_only(download, project, other_project):
    with tenant(other_project.id):
        factories.make_turn("theirs")
    assert download("/p/editor/export/turns?format=jsonl")[2] == ""


@pytest.mark.parametrize("path", ["/p/other/export/turns", "/p/editor/export/nope"])
def test_what_is_not_there_for_this_person_is_not_found(download, other_project, path):
    assert download(path)[0] == 404


@pytest.mark.parametrize("query", ["q=colour:red&format=csv", "format=xlsx"])
def test_a_wish_that_cannot_be_read_goes_back_to_the_list(download, query):
    status, location, _ = download(f"/p/editor/export/turns?{query}")
    assert status == 302 and location.startswith("/p/editor/turns?")


# --- In the list's own order ---


def exported(download, query: str, key: str = "session"):
    status, _, body = download(f"/p/editor/export/turns?format=jsonl&range=1d&{query}")
    assert status == 200
    return [json.loads(line)[key] for line in body.split("\n")[:-1]]


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_an_export_follows_the_order_of_its_list_and_loses_no_row(download, project, monkeypatch, size):
    monkeypatch.setattr(exports, "FIRST_ROWS", size)
    monkeypatch.setattr(exports, "MOST_ROWS", size)
    at = factories.timezone.now()
    with tenant(project.id):
        factories.make_policy()
        for i, latency_ms in enumerate([30.0, None, 10.0, 20.0, None, 20.0]):
            factories.make_turn(f"s{i}", latency_ms=latency_ms, at=at - timedelta(minutes=i))
    assert exported(download, "sort=latency_ms") == ["s2", "s3", "s5", "s0", "s1", "s4"]
    assert exported(download, "sort=-latency_ms") == ["s0", "s5", "s3", "s2", "s1", "s4"]
    assert exported(download, "sort=at") == ["s5", "s4", "s3", "s2", "s1", "s0"]
    assert exported(download, "") == ["s0", "s1", "s2", "s3", "s4", "s5"]


def test_the_menu_says_when_another_export_would_have_to_wait(as_engineer, project):
    """Both readers are held by two exports; a third is begun and waits."""
    go_on, started = threading.Event(), threading.Semaphore(0)

    def read(place, size):
        started.release()
        go_on.wait(20)
        return Chunk(rows=[], next=None)

    def queue() -> str:
        return as_engineer.get("/p/editor/export").content.decode()

    held = [threading.Thread(target=text_of, args=(Export(name="x", columns=("a",), read=read), "csv")) for _ in "ab"]
    try:
        assert "status" not in queue()
        for thread in held:
            thread.start()
            assert started.acquire(timeout=20)
        assert "2 exports are being written now" in queue()
    finally:
        go_on.set()
        for thread in held:
            thread.join(20)
    assert "status" not in queue() and exports.num_open() == 0


# --- Tables of pages that are no lists ---


@pytest.fixture
def evaluated(transactional_db, project):
    with tenant(project.id):
        evaluate.make_evaluated(factories.make_loop())


def table(download, name: str, query: str = ""):
    status, file, body = download(f"/p/editor/export/{name}?format=jsonl&{query}")
    assert status == 200 and f'filename="editor-{name}.jsonl"' in file
    return [json.loads(line) for line in body.split("\n")[:-1]]


def test_compare_exports_every_problem_of_the_filter_and_the_differences(download, evaluated):
    sides = "a=editor@2&b=editor@3"
    rows = table(download, "compare", sides)
    assert len(rows) == 40 and {row["a"] for row in rows} == {"editor@2"}
    worse = table(download, "compare", f"{sides}&change=regression")
    assert worse == [row for row in rows if row["change"] == "regression"] and worse
    assert all(row["difference"] == row["b_score"] - row["a_score"] for row in worse)
    whole = table(download, "compare-slices", sides)[0]
    assert whole["slice"] == "all" and whole["low"] <= whole["difference"] <= whole["high"]
    assert whole["n_common"] + sum(row["difference"] is None for row in rows) == 40


def test_costs_export_what_the_page_shows_and_unpriced_is_not_0(download, evaluated):
    rows = {row["who_answered"]: row for row in table(download, "costs")}
    assert {"editor@1", "editor@2"} <= set(rows)
    own, unpriced = rows["editor@2"], rows["gpt-6-preview"]
    assert unpriced["inference_calls"] == unpriced["inference_unpriced_calls"] == 4
    assert unpriced["inference_usd"] is None and unpriced["total_usd"] is None
    assert own["proving_calls"] == 4 and own["proving_unpriced_calls"] == 0 and Decimal(own["proving_usd"]) > 0
    assert all(Decimal(row["total_usd"]) >= 0 for row in rows.values() if row["total_usd"] is not None)
    quality = table(download, "cost-quality")
    assert quality and all(row["n_scored"] and row["score_low"] <= row["score_mean"] for row in quality)


def test_win_rates_export_pairs_and_ranking_of_the_chosen_judge(download, evaluated):
    pairs, ranking = table(download, "win-rates"), table(download, "ranking")
    assert all(row["decided"] == row["wins"] + row["ties"] + row["losses"] for row in pairs) and pairs
    assert {row["side"] for row in ranking} == {row[end] for row in pairs for end in ("side", "over")}
    people = table(download, "win-rates", "by=people")
    assert {row["by"] for row in people} == {"people"} and {row["by"] for row in pairs} != {"people"}


def test_judges_are_exported_with_n_and_bounds_and_what_is_unknown_is_empty(download, evaluated):
    rows = {row["judge"]: row for row in table(download, "judges")}
    assert rows["base"]["is_paused"] and rows["base"]["canaries"] == "failed"  # won by an empty answer
    for row in rows.values():
        assert row["judgements"] > 0 and row["tests_low"] <= row["tests_share"] <= row["tests_high"]
        assert (row["people_share"] is None) == (row["people_n"] == 0) == (row["people_low"] is None)
    assert table(download, "judges", "from=2026-01-01&to=2026-01-02")[0]["tests_share"] is None


def test_a_page_table_is_of_its_own_project_only(download, evaluated, other_project):
    assert download("/p/other/export/costs")[0] == 404


@pytest.mark.parametrize("query", ["a=editor@1&format=csv", "a=editor@1&b=editor@2&format=xlsx"])
def test_a_table_that_cannot_be_made_goes_back_to_its_page(download, project, query):
    status, location, _ = download(f"/p/editor/export/compare?{query}")
    assert status == 302 and location.startswith("/p/editor/compare?a=editor") and "format" not in location


@pytest.mark.parametrize(
    ("page", "tables"),
    [
        ("compare?a=editor@1&b=editor@2", ["compare", "compare-slices"]),
        ("costs?range=7d", ["costs"]),
        ("costs/quality?range=7d", ["cost-quality"]),
        ("win-rates?by=people", ["win-rates", "ranking"]),
        ("judges?range=90d", ["judges"]),
    ],
)
def test_these_pages_offer_their_tables_under_the_filter_and_how_often_to_read_again(
    client, viewer, evaluated, page, tables
):
    client.force_login(viewer)
    html = client.get(f"/p/editor/{page}").content.decode()
    links = re.findall(r'href="/p/editor/export/([a-z-]+)\?([^"]+)"', html)
    assert [name for name, _ in links] == [name for name in tables for _ in ("csv", "jsonl")]
    asked = page.partition("?")[2].replace("@", "%40").split("&")
    assert all(part in query for part in asked for _, query in links)
    assert "data-refresh-select" in html and 'id="results" data-refresh' in html
