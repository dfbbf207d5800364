"""OpenAI evals' logs: events in any order, errors, runs that died, grades that could not be parsed."""

import json
from pathlib import Path

import pytest

from evals.importers import openai_evals
from evals.importers.errors import Unreadable

SPEC = {
    "spec": {
        "completion_fns": ["m"],
        "eval_name": "e.dev.v0",
        "base_eval": "e",
        "run_id": "r",
        "created_at": "2023-01-01",
    }
}
REPORT = {"final_report": {"accuracy": 0.5, "bootstrap_std": 0.1}}


def event(kind: str, data: dict, sample: str = "e.dev.0") -> dict:
    return {"run_id": "r", "event_id": 0, "sample_id": sample, "type": kind, "data": data}


def sampling(output: str, sample: str = "e.dev.0") -> dict:
    return event("sampling", {"prompt": [{"role": "user", "content": "?"}], "sampled": [output]}, sample)


def read(folder: Path, *lines: dict):
    path = folder / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    assert openai_evals.recognises(path)
    (run,) = openai_evals.read(path)
    return run, list(run.results)


def told(run) -> str:
    return "\n".join(f"{note.kind}: {note.text}" for note in run.notes)


def test_a_match_is_a_score_and_an_error_is_none(samples):
    (run,) = openai_evals.read(samples("openai_evals/SYNTHETIC_from_record_py.jsonl"))
    first, second = run.results
    assert (first.problem, first.score, first.output, first.reference) == ("demo.dev.0", 1.0, "4", "4")
    assert first.messages == [{"role": "user", "content": "2+2"}]
    assert (second.problem, second.status, second.explanation) == ("demo.dev.1", "error", "429")
    assert "1 of 2 (50.00 %) samples ended in an error" in told(run)


def test_model_version_run_and_claims_are_the_logs(samples):
    (run,) = openai_evals.read(samples("openai_evals/SYNTHETIC_from_record_py.jsonl"))
    assert (run.benchmark, run.benchmark_version, run.model) == ("demo", "dev.v0", "gpt-x")
    assert run.run_id == "230101000000ABCDEFGH"
    assert [(claim.metric, claim.value, claim.stderr) for claim in run.claims] == [("accuracy", 1.0, 0.0)]


def test_a_spec_without_a_zone_is_taken_as_utc_and_told(samples):
    (run,) = openai_evals.read(samples("openai_evals/SYNTHETIC_from_record_py.jsonl"))
    assert run.started_at.isoformat() == "2023-01-01T00:00:00+00:00"
    assert "assumed: the spec's time has no zone: taken as UTC" in told(run)


def test_events_of_different_samples_may_be_mixed(tmp_path):
    _, results = read(
        tmp_path, SPEC, sampling("A", "a"), sampling("B", "b"), event("match", {"correct": False}, "b"),
        event("match", {"correct": True}, "a"), REPORT,
    )  # fmt: skip
    assert [(result.problem, result.output, result.score) for result in results] == [("b", "B", 0.0), ("a", "A", 1.0)]


def test_a_run_that_died_has_no_report_and_samples_without_a_verdict(tmp_path):
    run, results = read(tmp_path, SPEC, sampling("A", "a"), event("match", {"correct": True}, "a"), sampling("B", "b"))
    assert [(result.problem, result.status, result.output) for result in results] == [
        ("a", "scored", "A"),
        ("b", "unscored", "B"),
    ]
    assert "no final report: the run died" in told(run)
    assert "1 of 2 (50.00 %) samples have no verdict" in told(run)


def test_a_grade_that_could_not_be_parsed_is_unscored_whatever_number_stands_beside_it(tmp_path):
    _, results = read(
        tmp_path, SPEC, event("metrics", {"choice": "__invalid__", "score": 0.0}, "a"),
        event("metrics", {"choice": "Yes", "score": 1.0}, "b"), REPORT,
    )  # fmt: skip
    assert [(result.scorer, result.status, result.score) for result in results] == [
        ("score", "unscored", None),
        ("score", "scored", 1.0),
    ]


def test_an_error_is_counted_under_the_scorer_of_the_log(tmp_path):
    _, results = read(
        tmp_path, SPEC, event("metrics", {"score": 1.0}, "a"), event("error", {"message": "x"}, "b"), REPORT
    )
    assert {result.scorer for result in results} == {"score"}


def test_a_metric_that_is_no_share_is_kept_raw(tmp_path):
    _, results = read(tmp_path, SPEC, event("metrics", {"bleu": 37.2, "em": True}), REPORT)
    assert {result.scorer: (result.score, result.raw_score) for result in results} == {
        "bleu": (None, 37.2),
        "em": (1.0, None),
    }


def test_several_verdicts_on_a_sample_are_repeats(tmp_path):
    _, results = read(tmp_path, SPEC, *[event("match", {"correct": True})] * 2, REPORT)
    assert [result.repeat for result in results] == [0, 1]


def test_events_that_are_no_verdict_are_told(tmp_path):
    run, results = read(tmp_path, SPEC, event("extra", {"a": 1}), event("match", {"correct": True}), REPORT)
    assert len(results) == 1
    assert "left out: 1 extra" in told(run)


def test_a_line_of_something_else_is_refused_with_its_place(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(SPEC) + '\n{"a": 1}')
    with pytest.raises(Unreadable, match=r"log\.jsonl:2: a line is a spec"):
        list(openai_evals.read(path))
