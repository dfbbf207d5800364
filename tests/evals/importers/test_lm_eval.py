"""The lm-evaluation-harness: real and written files, and the public reports about its formats."""

import json

import pytest

from evals.importers import lm_eval
from evals.importers.errors import Unreadable
from evals.importers.record import Run


def runs(path) -> dict[str, Run]:
    return {run.benchmark: run for run in lm_eval.read(path)}


@pytest.fixture
def folder(samples):
    return samples("lm_eval")


@pytest.fixture
def toy(folder):
    """The runs of 0.4.13 with the dummy model: three tasks and a group."""
    return runs(folder / "results_2026-11-30T05-50-03.292058.json")


def written(tmp_path, results: dict, **others):
    path = tmp_path / "results_2026-01-01T00-00-00.json"
    path.write_text(json.dumps({"results": results, "n-shot": {}, **others}))
    return runs(path)


def texts(run: Run, kind: str) -> str:
    return "\n".join(note.text for note in run.notes if note.kind == kind)


def test_a_folder_gives_every_run_of_every_results_file_in_it(folder):
    assert set(runs(folder)) == {
        "mini_gen", "mini_mc", "mini_one", "mini_group", "math_perturbed_full", "math_rephrased_full",
    }  # fmt: skip


def test_row_7_a_standard_error_that_is_na_is_absent_and_the_rest_is_there(toy):
    (claim,) = toy["mini_one"].claims
    assert (claim.value, claim.stderr, claim.n) == (1.0, None, 1)
    assert "acc_stderr,none: the file has N/A" in texts(toy["mini_one"], "missing")


def test_row_7_a_standard_error_that_is_an_empty_list_is_absent(tmp_path):
    run = written(tmp_path, {"t": {"acc,none": 0.5, "acc_stderr,none": []}})["t"]
    assert [(claim.value, claim.stderr) for claim in run.claims] == [(0.5, None)]


def test_row_8_an_unweighted_group_mean_with_a_pooled_error_is_told_the_right_one(tmp_path):
    of = {"sample_len": 100, "acc,none": 0.5, "acc_stderr,none": 0.02}
    other = {"sample_len": 400, "acc,none": 0.7, "acc_stderr,none": 0.03}
    group = {"acc,none": 0.6, "acc_stderr,none": 0.024347}
    found = written(tmp_path, {"a": of, "b": other, "g": group}, group_subtasks={"g": ["a", "b"]})
    assert "0.024347 for acc,none" in texts(found["g"], "odd")
    assert "so it is 0.018028" in texts(found["g"], "odd")


def test_a_weighted_group_mean_with_a_pooled_error_is_not_odd(tmp_path):
    of = {"sample_len": 100, "acc,none": 0.5, "acc_stderr,none": 0.02}
    other = {"sample_len": 400, "acc,none": 0.7, "acc_stderr,none": 0.03}
    group = {"acc,none": 0.66, "acc_stderr,none": 0.024347}
    found = written(tmp_path, {"a": of, "b": other, "g": group}, group_subtasks={"g": ["a", "b"]})
    assert texts(found["g"], "odd") == ""


def test_row_9_every_filter_is_a_scorer_of_its_own_with_all_documents(toy):
    found = list(toy["mini_gen"].results)
    by_scorer = {}
    for result in found:
        by_scorer.setdefault(result.scorer, []).append(result.score)
    assert by_scorer == {"exact_match,strict-match": [0.0] * 6, "exact_match,flexible-extract": [1.0] * 6}
    assert all(result.repeat == 0 for result in found)


def test_row_10_a_line_separator_in_a_prompt_ends_no_record(toy):
    found = list(toy["mini_gen"].results)
    assert len(found) == 12
    assert found[0].prompt == "Question 0 é🙂\u2028?"


def test_row_25_the_clock_that_starts_with_the_machine_is_not_taken_for_a_date(folder):
    run = runs(folder / "real_results_2026-01-21T03-44-18.458309.json")["math_perturbed_full"]
    assert run.started_at.isoformat() == "2026-01-21T02:59:43.859322+00:00"
    assert run.raw["start_time"] == 3391296.96253277


def test_row_24_a_time_in_a_name_has_no_zone_and_the_assumption_is_told(folder):
    run = next(iter(lm_eval.read(folder / "samples_mini_gen_2026-11-30T05-50-03.292058.jsonl")))
    assert run.started_at.isoformat() == "2026-11-30T05:50:03.292058+00:00"
    assert "has no zone; it is taken as UTC" in texts(run, "assumed")


def test_a_real_standard_error_comes_through(folder):
    run = runs(folder / "real_results_2026-01-21T03-44-18.458309.json")["math_rephrased_full"]
    (claim,) = run.claims
    assert (claim.value, claim.stderr, claim.n) == (0.0004, 0.0002828144211304471, 5000)
    assert run.model == "RylanSchaeffer/mem_Qwen3-93M_minerva_math_rep_0_sbst_1.0000_epch_1_ot_1"


def test_an_excerpt_says_how_much_of_it_is_here(folder):
    run = runs(folder / "real_results_2026-01-21T03-44-18.458309.json")["math_perturbed_full"]
    assert len(list(run.results)) == 10
    assert "the results are of 5,000 documents; here: 10" in texts(run, "missing")


def test_a_multiple_choice_answer_is_the_likeliest_choice(toy):
    first = next(iter(toy["mini_mc"].results))
    assert (first.scorer, first.output, first.reference, first.score) == ("acc,none", "yy", "0", 0.0)


def test_a_random_model_name_gives_way_to_the_kind_of_model(toy):
    assert toy["mini_gen"].model == "dummy"
    assert "jt8a2350 is random" in texts(toy["mini_gen"], "assumed")


def test_arguments_written_as_text_name_the_model(tmp_path):
    config = {"model": "hf", "model_args": "pretrained=EleutherAI/pythia-160m,dtype=float16"}
    assert written(tmp_path, {"t": {"acc,none": 1}}, config=config)["t"].model == "EleutherAI/pythia-160m"


def test_version_0_3_has_keys_without_a_filter(tmp_path):
    run = written(tmp_path, {"arc": {"acc": 0.25, "acc_stderr": 0.01}}, versions={"arc": 0})["arc"]
    (claim,) = run.claims
    assert (claim.scorer, claim.value, claim.stderr, run.benchmark_version) == ("acc,none", 0.25, 0.01, "0")


def sample(**fields) -> str:
    return json.dumps(
        {"doc_id": 0, "target": "a", "arguments": [["q", {}]], "resps": [["x"]], "filtered_resps": ["x"]} | fields
    )


def of_samples(tmp_path, *lines: str):
    path = tmp_path / "samples_my_task_2026-01-01T00-00-00.jsonl"
    path.write_text("\n".join(lines) + "\n")
    run = next(iter(lm_eval.read(path)))
    return run, list(run.results)


def test_samples_before_the_filter_field_are_read(tmp_path):
    run, (result,) = of_samples(tmp_path, sample(acc=1.0))
    assert (run.benchmark, result.scorer, result.score, result.prompt) == ("my_task", "acc,none", 1.0, "q")


@pytest.mark.parametrize(
    ("metric", "value"), [("word_perplexity", 12.5), ("bleu", 0.4), ("f1", [0, 1]), ("acc", 1.5), ("acc", -0.1)]
)
def test_what_has_no_scale_of_0_to_1_is_unscored_and_keeps_its_value(tmp_path, metric, value):
    _, (result,) = of_samples(tmp_path, sample(filter="none", metrics=[metric], **{metric: value}))
    assert (result.status, result.score, result.raw_score) == ("unscored", None, value)
    assert result.explanation


def test_nan_is_no_value_and_is_counted(tmp_path):
    run, (result,) = of_samples(tmp_path, sample(filter="none", metrics=["acc"], acc=float("nan")))
    assert (result.status, result.score) == ("unscored", None)
    assert "1 × NaN" in texts(run, "odd")


def test_true_and_false_are_1_and_0(tmp_path):
    _, results = of_samples(tmp_path, sample(metrics=["acc"], acc=True), sample(metrics=["acc"], acc=False, doc_id=1))
    assert [result.score for result in results] == [1.0, 0.0]


def test_a_document_that_comes_twice_is_kept_twice(tmp_path):
    run, results = of_samples(tmp_path, sample(metrics=["acc"], acc=1), sample(metrics=["acc"], acc=0))
    assert [(result.problem, result.repeat, result.score) for result in results] == [("0", 0, 1.0), ("0", 1, 0.0)]
    assert "more than once" in texts(run, "odd")


def test_the_raw_record_is_kept_once_with_its_unknown_fields(tmp_path):
    _, results = of_samples(tmp_path, sample(metrics=["acc", "acc_norm"], acc=1, acc_norm=0, new_field={"a": 1}))
    assert [result.raw.get("new_field") for result in results] == [{"a": 1}, None]


def test_a_line_that_is_cut_off_is_named(tmp_path):
    with pytest.raises(Unreadable, match=r"\.jsonl:2: not JSON"):
        of_samples(tmp_path, sample(acc=1), sample(acc=1)[:30])


def test_a_file_without_results_says_what_to_give(tmp_path):
    path = tmp_path / "results_x.json"
    path.write_text('{"results": {}}')
    with pytest.raises(Unreadable, match="give the harness's results"):
        list(lm_eval.read(path))
