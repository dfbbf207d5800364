"""What a field of somebody else's record stands for, and rows of any kind of file."""

import json
import tracemalloc
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from evals.importers import fields, rows, terminal_bench
from evals.importers.errors import Unreadable


def test_times_of_different_zones_are_sorted_in_utc():
    # inspect's "-05:00", promptfoo's "Z", harbor's none at all
    written = ["2026-01-01T10:00:00-05:00", "2026-01-01T14:59:59Z", "2026-01-01T15:00:01"]
    times = [fields.instant(text) for text in written]
    assert sorted(times) == [times[1], times[0], times[2]]
    assert {time.tzinfo for time in times} == {UTC}
    assert [fields.is_naive(text) for text in written] == [False, False, True]


@pytest.mark.parametrize("value", [None, "", "yesterday", [], 1e300, "2026-99-01"])
def test_what_is_no_time_is_none(value):
    assert fields.instant(value) is None


def test_seconds_since_1970_are_a_time():
    assert fields.instant(1700000000) == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "score"),
    [(True, 1.0), (0.25, 0.25), (1, 1.0), (1.7, None), (-0.1, None), ("0.5", None), (None, None), (10**400, None)],
)
def test_a_score_is_a_truth_or_a_number_in_0_to_1(value, score):
    assert fields.unit(value) == score


@pytest.mark.parametrize(
    ("value", "cost"),
    [
        (0.1, Decimal("0.1")),
        (0, Decimal(0)),
        (-1, None),
        (1e30, None),
        (float("nan"), None),
        (None, None),
        (True, None),
    ],
)
def test_what_cannot_be_a_cost_is_unknown_not_0(value, cost):
    assert fields.cost(value) == cost


def test_a_long_id_keeps_its_beginning_and_stays_unique():
    one, two = fields.identity("x" * 300), fields.identity("x" * 299 + "y")
    assert (len(one), len(two), one == two) == (128, 128, False)
    assert fields.identity(7) == "7"


def test_time_that_runs_backwards_is_no_duration():
    assert fields.elapsed_ms("2026-01-01T00:00:01Z", "2026-01-01T00:00:00Z") is None
    assert fields.elapsed_ms("2026-01-01T00:00:00Z", "2026-01-01T00:00:01.5Z") == 1500


def test_lines_and_one_list_give_the_same_records(tmp_path):
    records = [{"a": 1, "text": "x\u2028y"}, {"a": 2}]
    one, other = tmp_path / "a.jsonl", tmp_path / "a.json"
    one.write_text("\n".join(json.dumps(record, ensure_ascii=False) for record in records))
    other.write_text(json.dumps(records, indent=1))
    assert [record for _, record in rows.records(one)] == [record for _, record in rows.records(other)] == records


def test_a_record_that_is_no_object_is_refused_with_its_place(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('[{"a": 1}, 2]')
    with pytest.raises(Unreadable, match=r"a\.json, record 2"):
        list(rows.records(path))


def test_a_link_is_no_file_of_a_folder(tmp_path):
    (tmp_path / "real").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert rows.file_in(tmp_path, "real")
    assert rows.file_in(tmp_path, "link") is None
    assert rows.file_in(tmp_path, "none") is None


def test_80_mb_are_read_in_16(tmp_path):
    path = tmp_path / "results.json"
    trial = {"trial_name": "t", "task_id": "t", "is_resolved": True, "instruction": "x" * 2**15}
    with path.open("w") as file:
        file.write('{"id": "r", "results": [')
        file.write(",".join(json.dumps(trial | {"id": number}) for number in range(2500)))
        file.write('], "accuracy": 1}')
    tracemalloc.start()
    try:
        (run,) = terminal_bench.read(path)
        num_results = sum(1 for _ in run.results)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert num_results == 2500
    assert peak < 16 * 2**20
