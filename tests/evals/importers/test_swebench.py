"""SWE-bench's reports and predictions: which instances count as what, and over which denominator."""

import json
from pathlib import Path

import pytest

from evals.importers import registry, swebench
from evals.importers.errors import Unreadable

REPORT = "swebench/org__model-x.run1.json"


def only(path: Path):
    runs = list(swebench.read(path))
    assert len(runs) == 1
    return runs[0], list(runs[0].results)


def written(folder: Path, document: object, name: str = "org__model-x.run1.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(document))
    return path


def told(run) -> str:
    return "\n".join(f"{note.kind}: {note.text}" for note in run.notes)


def test_the_leaderboards_number_is_of_all_instances_and_others_have_their_names(samples):
    run, results = only(samples(REPORT))
    resolved = sum(result.score or 0 for result in results)
    assert f"{100 * resolved / len(results):.2f}" == "16.67"
    claims = {claim.where: (claim.value, claim.n) for claim in run.claims}
    assert claims["all instances, as SWE-bench counts"] == (pytest.approx(1 / 6), 6)
    assert claims["submitted"] == (0.2, 5)
    assert claims["completed"] == (0.5, 2)


def test_model_and_run_are_read_from_the_files_name(samples):
    run, _ = only(samples(REPORT))
    assert (run.model, run.settings["run"]) == ("org/model-x", "run1")
    assert "taken from the file's name" in told(run)


def test_an_empty_patch_is_a_zero_an_error_and_a_missing_prediction_are_not(samples):
    _, results = only(samples(REPORT))
    by_id = {result.problem: (result.status, result.score) for result in results}
    assert by_id == {
        "django__django-11099": ("scored", 1.0),
        "sympy__sympy-20590": ("scored", 0.0),
        "astropy__astropy-12907": ("scored", 0.0),
        "psf__requests-863": ("scored", 0.0),
        "pallets__flask-4045": ("infra", None),
        "missing__inst-1": ("error", None),
    }


def test_row_17_a_run_whose_infrastructure_failed_is_not_zero_per_cent(tmp_path):
    # SWE-bench#472, sb-cli#27: the report looks like a model that solves nothing
    ids = [f"repo__repo-{number}" for number in range(5)]
    report = {
        "total_instances": 5, "submitted_instances": 5, "completed_instances": 0, "resolved_instances": 0,
        "submitted_ids": ids, "resolved_ids": [], "error_ids": ids[:3], "failed_instances": 2, "failed_ids": ids[3:],
    }  # fmt: skip
    run, results = only(written(tmp_path, report))
    assert {result.status for result in results} == {"infra"}
    assert "5 infra failures (no verdict): SWE-bench counts them as unresolved, 0 of 5 (0.00 %)" in told(run)


def test_what_the_harness_calls_an_infra_failure_is_masked_with_its_reason(tmp_path):
    report = {
        "total_instances": 2, "resolved_instances": 1, "resolved_ids": ["a"], "unresolved_ids": [],
        "infra_failure_ids": ["b"], "infra_failure_instances": 1, "failure_reasons": {"b": "no space left"},
    }  # fmt: skip
    run, results = only(written(tmp_path, report))
    masked = next(result for result in results if result.problem == "b")
    assert (masked.status, masked.score) == ("infra", None)
    assert "no space left" in masked.explanation
    assert "1 of 2 (50.00 %); of those with a verdict 1 of 1 (100.00 %)" in told(run)


def test_row_17_a_report_about_no_instances_is_no_data_and_claims_nothing(tmp_path):
    # OpenHands/benchmarks#152
    run, results = only(written(tmp_path, {"total_instances": 0, "resolved_instances": 0, "resolved_ids": []}))
    assert (results, run.claims) == ([], [])
    assert "missing: no data: total_instances is 0" in told(run)


def test_submitted_ids_outside_the_data_set_are_no_results(tmp_path):
    report = {
        "total_instances": 1, "submitted_instances": 2, "resolved_instances": 1, "resolved_ids": ["a"],
        "completed_ids": ["a"], "submitted_ids": ["a", "elsewhere__1"],
    }  # fmt: skip
    run, results = only(written(tmp_path, report))
    assert [result.problem for result in results] == ["a"]
    assert "submitted ids outside the data set: 1 (elsewhere__1)" in told(run)


def test_counts_that_differ_from_the_lists_are_told(tmp_path):
    report = {"total_instances": 4, "resolved_instances": 2, "resolved_ids": ["a"], "unresolved_ids": ["b"]}
    run, _ = only(written(tmp_path, report))
    assert "resolved_instances is 2, resolved_ids has 1" in told(run)
    assert "total_instances is 4, the lists name 2" in told(run)


def test_failures_that_are_only_counted_are_told(tmp_path):
    # sb-cli writes failed_instances
    report = {"total_instances": 2, "resolved_instances": 1, "resolved_ids": ["a"], "failed_instances": 1}
    run, _ = only(written(tmp_path, report))
    assert "failed_instances is 1, and no list says which" in told(run)


def test_lists_of_version_1_are_read_and_the_size_of_the_data_set_is_unknown(tmp_path):
    report = {
        "no_generation": ["a"], "generated": ["b", "c", "d"], "with_logs": ["b", "c", "d"], "install_fail": ["d"],
        "reset_failed": [], "no_apply": [], "applied": ["b", "c"], "test_errored": [], "test_timeout": ["c"],
        "resolved": ["b"],
    }  # fmt: skip
    run, results = only(written(tmp_path, report, name="results.json"))
    assert {result.problem: (result.status, result.score) for result in results} == {
        "a": ("scored", 0.0), "b": ("scored", 1.0), "c": ("scored", 0.0), "d": ("infra", None),
    }  # fmt: skip
    assert "does not tell the size of the data set" in told(run)


def test_unknown_lists_and_fields_of_other_writers_do_no_harm(tmp_path):
    report = {
        "schema_version": "swebench_pro_v1", "total_instances": 2, "resolved_instances": 1, "resolved_ids": ["a"],
        "skipped_ids": ["b"], "unstopped_containers": 0, "unremoved_images": ["x"],
    }  # fmt: skip
    run, results = only(written(tmp_path, report))
    assert {result.problem: result.status for result in results} == {"a": "scored", "b": "unscored"}
    assert run.settings["schema_version"] == "swebench_pro_v1"


def test_the_report_of_an_instance_tells_which_tests_passed(samples):
    _, results = only(samples("swebench/instance_report_django__django-11099.json"))
    assert (results[0].problem, results[0].score) == ("django__django-11099", 1.0)
    assert results[0].explanation == "FAIL_TO_PASS 1 of 1, PASS_TO_PASS 1 of 1"


def test_a_folder_of_logs_is_one_run_for_each_model(tmp_path):
    for model, each, resolved in (("org__a", "x", True), ("org__a", "y", False), ("org__b", "x", True)):
        folder = tmp_path / "run_evaluation" / "run7" / model / each
        folder.mkdir(parents=True)
        (folder / "report.json").write_text(json.dumps({each: {"patch_is_None": False, "resolved": resolved}}))
    assert swebench.recognises(tmp_path / "run_evaluation" / "run7" / "org__a")
    assert len(registry.find(tmp_path).readable) == 2
    runs = {run.model: run for run in swebench.read(tmp_path / "run_evaluation")}
    assert {model: [result.score for result in run.results] for model, run in runs.items()} == {
        "org/a": [1.0, 0.0],
        "org/b": [1.0],
    }
    assert runs["org/a"].settings == {"run": "run7"}


def test_predictions_alone_have_outputs_and_no_verdict(samples):
    run, results = only(samples("swebench/preds.jsonl"))
    assert {result.status for result in results} == {"unscored"}
    assert results[0].output.startswith("diff --git")
    assert "2 of 5 (40.00 %) patches are empty" in told(run)


def test_of_two_predictions_for_one_instance_the_later_counts(tmp_path):
    path = tmp_path / "preds.jsonl"
    rows = [{"instance_id": "a", "model_patch": patch, "model_name_or_path": "m"} for patch in ("old", "new")]
    path.write_text("\n".join(map(json.dumps, rows)))
    run, results = only(path)
    assert [result.output for result in results] == ["new"]
    assert "predictions replaced by a later one for the same instance: 1" in told(run)


def test_predictions_as_an_object_by_instance_are_read(tmp_path):
    path = tmp_path / "preds.json"
    path.write_text(json.dumps({"a": {"model_patch": "p", "model_name_or_path": "m"}, "b": {"model_patch": ""}}))
    found = {result.problem: result.output for run in swebench.read(path) for result in run.results}
    assert found == {"a": "p", "b": ""}


def test_another_file_is_refused_with_what_would_be_right(tmp_path):
    path = written(tmp_path, {"accuracy": 1})
    assert not swebench.recognises(path)
    with pytest.raises(Unreadable, match="neither a run report"):
        list(swebench.read(path))
