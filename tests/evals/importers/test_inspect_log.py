"""Inspect's logs: real ones from 2024 to 2026, and the public reports about the format."""

import json
import resource
import statistics
import zipfile

import pytest

from evals.importers import inspect_log
from evals.importers.errors import Unreadable
from evals.importers.record import Run

SPEC = {"task": "t", "run_id": "r1", "eval_id": "e1", "model": "m", "created": "2026-01-02T03:04:05+00:00"}
HEADER = {"version": 2, "status": "success", "eval": SPEC}


def one(path) -> Run:
    (run,) = inspect_log.read(path)
    return run


def texts(run: Run, kind: str) -> str:
    return "\n".join(note.text for note in run.notes if note.kind == kind)


def as_json(tmp_path, *samples: dict, **header):
    path = tmp_path / "log.json"
    path.write_text(json.dumps(HEADER | header | {"samples": list(samples)}))
    run = one(path)
    return run, list(run.results)


def sample(id="a", value="C", epoch=1, **fields) -> dict:
    return {"id": id, "epoch": epoch, "input": "q", "target": "t", "scores": {"match": {"value": value}}} | fields


def archive(path, members: list[tuple[str, object]]):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members:
            with pytest.warns(UserWarning, match="Duplicate") if name in file.namelist() else _nothing():
                file.writestr(name, json.dumps(content))
    return path


class _nothing:
    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


@pytest.mark.parametrize("name", ["gen_v0.3.285_epochs2_nan_zstd.eval", "gen_v0.3.285_epochs2_nan.json"])
def test_row_26_zstandard_members_and_plain_json_read_alike(samples, name):
    run = one(samples("inspect") / name)
    scores = {(r.problem, r.repeat, r.scorer): r.score for r in run.results}
    assert len(scores) == 12
    assert [scores["1", epoch, "match"] for epoch in (0, 1)] == [1.0, 0.0]
    assert [scores["2", epoch, "nanscore"] for epoch in (0, 1)] == [None, None]
    assert run.source.writer_version == "0.3.285"


def test_epochs_reduce_to_what_the_log_claims(samples):
    run = one(samples("inspect") / "gen_v0.3.285_epochs2_nan.json")
    by_problem = {}
    for result in run.results:
        if result.scorer == "match":
            by_problem.setdefault(result.problem, []).append(result.score)
    means = [statistics.mean(values) for values in by_problem.values()]
    claim = run.claims[0]
    assert statistics.mean(means) == pytest.approx(claim.value) == pytest.approx(1 / 3)
    assert statistics.stdev(means) / 3**0.5 == pytest.approx(claim.stderr) == pytest.approx(1 / 6)
    assert (claim.where, claim.n) == ("reducer mean", 3)


def test_every_sample_file_imports(samples):
    found = {path.name: (one(path), path) for path in sorted(samples("inspect").iterdir())}
    assert len(found) == 14
    assert all(inspect_log.recognises(path) for _, path in found.values())
    assert sum(len(list(run.results)) for run, _ in found.values()) == 51


def test_row_1_nan_in_a_score_of_several_keys_is_unscored_by_each(tmp_path):
    path = tmp_path / "log.json"
    path.write_text(
        json.dumps(HEADER)[:-1]
        + ', "samples": [{"id": 1, "epoch": 1, "scores": {"s": {"value": {"one": NaN, "two": NaN}}}}]}'
    )
    run = one(path)
    assert [(r.scorer, r.status, r.score) for r in run.results] == [
        ("s/one", "unscored", None), ("s/two", "unscored", None),
    ]  # fmt: skip
    assert "2 × NaN" in texts(run, "odd")


def test_row_2_infinities_in_claims_are_no_values(tmp_path):
    path = tmp_path / "log.json"
    metrics = '{"mean": {"value": Infinity}, "accuracy": {"value": NaN}, "max": {"value": 1e400}}'
    path.write_text(
        json.dumps(HEADER)[:-1] + ', "results": {"scores": [{"name": "s", "scorer": "s", "metrics": ' + metrics + "}]}}"
    )
    assert [claim.value for claim in one(path).claims] == [None, None, None]


def test_row_4_two_samples_of_one_id_are_both_kept(tmp_path):
    run, results = as_json(tmp_path, sample(value=1), sample(value=0))
    assert [(r.problem, r.score) for r in results] == [("a", 1.0), ("a#2", 0.0)]
    assert "kept apart as id#2, id#3: a" in texts(run, "odd")


def test_row_4_two_members_of_one_name_are_both_read(tmp_path):
    path = archive(
        tmp_path / "log.eval",
        [
            ("header.json", HEADER),
            ("samples/a_epoch_1.json", sample(value=1)),
            ("samples/a_epoch_1.json", sample(value=0)),
        ],
    )
    assert [(r.problem, r.score) for r in one(path).results] == [("a", 1.0), ("a#2", 0.0)]


def test_row_5_a_log_of_20000_samples_is_listed_from_its_header_and_read_in_bounded_memory(tmp_path):
    def members():
        yield "header.json", HEADER
        for number in range(20_000):
            yield f"samples/{number}_epoch_1.json", sample(id=number, value="I", events=[{"text": "x" * 2000}])

    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, content in members():
            file.writestr(name, json.dumps(content))
    run = one(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert sum(1 for _ in run.results) == 20_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000, "kilobytes"


def test_row_5_reading_the_header_reads_no_sample(tmp_path):
    path = archive(tmp_path / "log.eval", [("header.json", HEADER), ("samples/a_epoch_1.json", "not a sample")])
    run = one(path)
    assert run.model == "m"
    with pytest.raises(Unreadable, match="a sample is an object with an id"):
        list(run.results)


@pytest.mark.parametrize(
    ("value", "score", "status"),
    [("C", 1.0, "scored"), ("P", 0.5, "scored"), ("I", 0.0, "scored"), ("N", 0.0, "scored"), ("yes", 1.0, "scored"),
     ("0.25", 0.25, "scored"), (True, 1.0, "scored"), (False, 0.0, "scored"), (0.5, 0.5, "scored"),
     ("D", None, "unscored"), ("E", None, "unscored"), (7, None, "unscored"), ([1, 2], None, "unscored"),
     (None, None, "unscored"), ({}, None, "unscored")],
)  # fmt: skip
def test_row_6_letters_numbers_and_categories(tmp_path, value, score, status):
    _, (result,) = as_json(tmp_path, sample(value=value, metadata={"k": [None, None]}))
    assert (result.score, result.status) == (score, status)
    if status == "unscored" and value not in (None,):
        assert result.raw_score == value
        assert result.explanation


def test_row_24_zones_become_utc_and_a_time_without_one_is_told(tmp_path):
    run, _ = as_json(tmp_path, stats={"started_at": "2025-02-11T15:17:00-05:00"})
    assert run.started_at.isoformat() == "2025-02-11T20:17:00+00:00"
    run, _ = as_json(tmp_path, stats={"started_at": "2025-02-11T15:17:00"})
    assert run.started_at.isoformat() == "2025-02-11T15:17:00+00:00"
    assert "has no zone" in texts(run, "assumed")


def test_row_27_a_standard_error_of_one_sample_is_none(samples):
    run = one(samples("inspect") / "mmlu-summary-choices.eval")
    assert [(claim.value, claim.stderr, claim.n) for claim in run.claims] == [(0.0, None, 1)]


def test_an_unfinished_log_is_built_from_its_journal(tmp_path):
    start = {"version": 2, "eval": SPEC, "plan": {}}
    path = archive(tmp_path / "log.eval", [("_journal/start.json", start), ("samples/a_epoch_1.json", sample())])
    run = one(path)
    assert (run.model, [r.score for r in run.results]) == ("m", [1.0])
    assert "unfinished" in texts(run, "missing")


def test_a_trimmed_log_says_how_many_samples_its_results_are_of(samples):
    run = one(samples("inspect") / "eee_data_intercode_ctf_local_path.json")
    assert len(list(run.results)) == 1
    assert "results are of 79 samples; here: 1" in texts(run, "missing")
    assert run.claims[0].value == pytest.approx(28 / 79)


def test_a_cancelled_run_and_a_limit_are_told(samples):
    run = one(samples("inspect") / "2025-05-12T20-28-13-04-00_no-samples.json")
    assert "ended as cancelled" in texts(run, "missing")
    assert "3 of the data set's 100 samples were asked (limit 3)" in texts(run, "missing")


def test_usage_is_the_measured_models_and_leaves_cached_tokens_apart(tmp_path):
    usage = {
        "m": {"input_tokens": 10, "output_tokens": 3, "total_tokens": 18, "input_tokens_cache_read": 5},
        "judge": {"input_tokens": 999, "output_tokens": 9, "total_tokens": 1008},
    }
    run, (result,) = as_json(tmp_path, sample(model_usage=usage))
    assert (result.usage.input, result.usage.cache_read, result.usage.output) == (10, 5, 3)
    assert "do not add up" not in texts(run, "odd")


def test_tokens_that_do_not_add_up_are_told(tmp_path):
    run, _ = as_json(tmp_path, sample(model_usage={"m": {"input_tokens": 10, "output_tokens": 3, "total_tokens": 99}}))
    assert "tokens of 1 samples do not add up" in texts(run, "odd")


def test_a_sample_that_failed_is_an_error_not_a_zero(tmp_path):
    failed = sample(scores={}, error={"message": "out of memory", "traceback": ""})
    _, (result,) = as_json(tmp_path, failed, eval=SPEC | {"scorers": [{"name": "match"}]})
    assert (result.scorer, result.status, result.score) == ("match", "error", None)
    assert result.explanation == "out of memory"


def test_events_stay_in_the_log_and_unknown_fields_are_kept(tmp_path):
    _, (result,) = as_json(tmp_path, sample(events=[1, 2, 3], brand_new={"a": 1}))
    assert result.raw["brand_new"] == {"a": 1}
    assert "events" not in result.raw


def test_a_reference_to_an_attachment_is_resolved(tmp_path):
    _, (result,) = as_json(tmp_path, sample(input="attachment://abc", attachments={"abc": "the question"}))
    assert result.prompt == "the question"


def test_ids_may_hold_anything(tmp_path):
    _, results = as_json(tmp_path, sample(id="../../etc/passwd"), sample(id="x" * 500), sample(id=3))
    assert [len(r.problem) for r in results] == [16, 128, 1]


def test_an_archive_without_a_directory_tells_how_many_members_are_whole(tmp_path, samples):
    whole = (samples("inspect") / "log_formats.eval").read_bytes()
    path = tmp_path / "cut.eval"
    path.write_bytes(whole[: whole.index(b"PK\x01\x02")])
    with pytest.raises(Unreadable, match="6 of its members are whole"):
        one(path)


def test_an_object_that_is_no_log_is_refused_with_what_to_give(tmp_path):
    path = tmp_path / "log.json"
    path.write_text('{"eval": {}}')
    with pytest.raises(Unreadable, match=r"no eval\.task"):
        one(path)
