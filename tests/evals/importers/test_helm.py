"""HELM's run folders: splits apart, numbers from the instances, what HELM dropped."""

import json
import shutil
from pathlib import Path

import pytest

from evals.importers import helm, registry
from evals.importers.errors import Unreadable

MMLU, HELLASWAG = "helm/mmlu-subject_philosophy", "helm/commonsense-dataset_hellaswag"


def runs_of(path: Path) -> dict:
    """Each run by its benchmark, with its results by scorer."""
    found = {}
    for run in helm.read(path):
        results: dict = {}
        for result in run.results:
            results.setdefault(result.scorer, []).append(result)
        found[run.benchmark] = (run, results)
    return found


def told(run) -> str:
    return "\n".join(f"{note.kind}: {note.text}" for note in run.notes)


def stat(name: str, mean: float | None, *, split: str = "test", **more) -> dict:
    numbers = {"count": 0} if mean is None else {"count": 1, "mean": mean}
    return {"name": {"name": name, "split": split, **more}, **numbers}


def entry(each: str, *stats: dict, trial: int = 0, **fields) -> dict:
    return {"instance_id": each, "train_trial_index": trial, "stats": list(stats), **fields}


def state(each: str, output: str, *, split: str = "test", **fields) -> dict:
    result = {"success": True, "completions": [{"text": output}]}
    return {
        "instance": {"id": each, "split": split, "input": {"text": "?"}},
        "train_trial_index": 0,
        "result": result,
        **fields,
    }


def written(
    folder: Path, entries: list[dict], states: list[dict] | None = None, stats: list[dict] | None = None
) -> Path:
    spec = {"name": "toy:model=a_b", "adapter_spec": {"model": "a/b"}}
    (folder / "run_spec.json").write_text(json.dumps(spec))
    (folder / "per_instance_stats.json").write_text(json.dumps(entries))
    if states is not None:
        (folder / "scenario_state.json").write_text(json.dumps({"request_states": states}))
    if stats is not None:
        (folder / "stats.json").write_text(json.dumps(stats))
    return folder


def mean(results: list) -> float:
    return sum(result.score for result in results) / len(results)


def test_the_test_split_is_not_pooled_with_the_valid_one(samples):
    runs = runs_of(samples(MMLU))
    name = "mmlu:subject=philosophy,method=multiple_choice_joint"
    assert set(runs) == {f"{name} [test]", f"{name} [valid]"}
    run, results = runs[f"{name} [test]"]
    assert (f"{mean(results['exact_match']):.4f}", len(results["exact_match"])) == ("0.1111", 9)
    assert "not pooled: valid (n 1)" in told(run)
    assert mean(runs[f"{name} [valid]"][1]["exact_match"]) == 0


def test_hellaswag_gives_its_stated_accuracy(samples):
    ((run, results),) = runs_of(samples(HELLASWAG)).values()
    assert (mean(results["exact_match"]), len(results["exact_match"])) == (0.3, 10)
    assert {claim.metric: claim.value for claim in run.claims}["exact_match"] == pytest.approx(0.3)
    assert run.model == "eleutherai/pythia-1b-v0"


def test_bookkeeping_is_no_score_but_usage_and_latency(samples):
    _, results = next(iter(runs_of(samples(MMLU)).values()))
    assert not [
        scorer for scorer in results if scorer.startswith(("num_", "finish_", "inference_", "training_", "logprob"))
    ]
    first = results["exact_match"][0]
    assert (first.problem, first.usage.input, first.usage.output) == ("id147", 333, 1)
    assert first.latency_ms == pytest.approx(680.367, abs=0.001)


def test_prompt_output_and_the_correct_reference_are_joined_in(samples):
    _, results = next(iter(runs_of(samples(MMLU)).values()))
    first = results["exact_match"][0]
    assert (first.output, first.reference) == (" D", "internalmeaning")
    assert first.prompt.endswith("D. meaning in an afterlife\nAnswer:")
    assert first.explanation == "D stands for 'meaning in an afterlife'"
    assert first.raw["request_state"]["instance"]["id"] == "id147"


def test_files_in_different_orders_are_joined_by_instance_and_trial(tmp_path):
    entries = [entry(each, stat("exact_match", 1.0)) for each in "abc"]
    written(tmp_path, entries, [state(each, each.upper()) for each in "cab"])
    ((_, results),) = runs_of(tmp_path).values()
    assert [result.output for result in results["exact_match"]] == ["A", "B", "C"]


def test_an_instance_without_a_statistic_that_others_have_is_unscored(tmp_path):
    # helm#1765: what is NaN is dropped when it is written
    written(tmp_path, [entry("a", stat("f1", 0.5)), entry("b", stat("other", 1.0)), entry("c", stat("f1", None))])
    ((run, results),) = runs_of(tmp_path).values()
    assert [(result.problem, result.status) for result in results["f1"]] == [
        ("a", "scored"), ("b", "unscored"), ("c", "unscored"),
    ]  # fmt: skip
    assert "1 of 3 (33.33 %) instances have no f1: HELM drops what is NaN" in told(run)


def test_a_bare_nan_is_unscored(tmp_path):
    written(tmp_path, [entry("a", stat("f1", 0.5))])
    path = tmp_path / "per_instance_stats.json"
    path.write_text(path.read_text().replace("0.5", "NaN"))
    ((_, results),) = runs_of(tmp_path).values()
    assert results["f1"][0].status == "unscored"


def test_a_perturbed_instance_is_in_a_run_of_its_own(tmp_path):
    perturbation = {"name": "misspelling", "prob": 0.1, "computed_on": "perturbed"}
    written(tmp_path, [entry("a", stat("f1", 1.0)), entry("a", stat("f1", 0.0), perturbation=perturbation)])
    runs = runs_of(tmp_path)
    assert {name: mean(results["f1"]) for name, (_, results) in runs.items()} == {
        "toy [test]": 1.0,
        "toy [test, misspelling prob=0.1]": 0.0,
    }


def test_train_trials_are_repeats(tmp_path):
    written(tmp_path, [entry("a", stat("f1", 1.0), trial=trial) for trial in (0, 1, 2)])
    ((_, results),) = runs_of(tmp_path).values()
    assert [result.repeat for result in results["f1"]] == [0, 1, 2]


def test_a_metric_that_is_no_share_is_kept_raw(tmp_path):
    written(tmp_path, [entry("a", stat("bits_per_byte", 1.7))])
    ((run, results),) = runs_of(tmp_path).values()
    result = results["bits_per_byte"][0]
    assert (result.status, result.score, result.raw_score) == ("unscored", None, 1.7)
    assert "values of bits_per_byte outside [0, 1], kept raw and not scored: 1" in told(run)


def test_a_request_that_failed_is_an_error(tmp_path):
    failed = state("a", "", result={"success": False, "error": "quota", "completions": []})
    written(tmp_path, [entry("a", stat("f1", 0.0))], [failed])
    ((_, results),) = runs_of(tmp_path).values()
    assert (results["f1"][0].status, results["f1"][0].explanation) == ("error", "quota")


def test_claims_name_their_split_and_what_they_were_computed_on(tmp_path):
    perturbed = stat("f1", 0.2, perturbation={"name": "typos", "computed_on": "worst"})
    written(tmp_path, [entry("a", stat("f1", 1.0))], stats=[stat("f1", 1.0), perturbed, stat("num_bytes", 3.0)])
    ((run, _),) = runs_of(tmp_path).values()
    assert [(claim.metric, claim.value, claim.where) for claim in run.claims] == [("f1", 1.0, "test")]


def test_a_suite_is_every_run_in_it(samples, tmp_path):
    for name in (MMLU, HELLASWAG):
        shutil.copytree(samples(name), tmp_path / Path(name).name)
    assert len(runs_of(tmp_path)) == 3
    assert len(registry.find(tmp_path).readable) == 2


def test_what_else_lies_beside_a_run_is_not_swallowed(samples, tmp_path):
    shutil.copytree(samples(MMLU), tmp_path / "run")
    shutil.copy(samples("swebench/preds.jsonl"), tmp_path)
    assert [importer.FORMAT for importer, _ in registry.find(tmp_path).readable] == ["swebench", "helm"]


def test_another_folder_is_refused_with_what_would_be_right(tmp_path):
    assert not helm.recognises(tmp_path)
    with pytest.raises(Unreadable, match=r"run_spec\.json"):
        list(helm.read(tmp_path))
