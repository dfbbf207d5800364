"""promptfoo: three forms of one evaluation, its cache, errors that are only failed assertions."""

import json
from pathlib import Path

import pytest

from evals.importers import promptfoo
from evals.importers.errors import Unreadable


def runs_of(path: Path) -> list:
    """Each run with its results by scorer."""
    found = []
    for run in promptfoo.read(path):
        results: dict = {}
        for result in run.results:
            results.setdefault(result.scorer, []).append(result)
        found.append((run, results))
    return found


def told(run) -> str:
    return "\n".join(f"{note.kind}: {note.text}" for note in run.notes)


def row(output: str = "out", *, test: int = 0, **fields) -> dict:
    return {
        "promptIdx": 0, "testIdx": test, "provider": {"id": "openai:gpt-5", "label": ""}, "vars": {"x": "a"},
        "prompt": {"raw": "Say a", "label": "Say {{x}}"}, "response": {"output": output}, "success": True, "score": 1,
        "namedScores": {}, "gradingResult": {"pass": True, "score": 1, "reason": "All assertions passed"},
        "failureReason": 0, "latencyMs": 250, "cost": 0.01, **fields,
    }  # fmt: skip


def written(folder: Path, *rows: dict, **document) -> Path:
    path = folder / "out.json"
    results = {"version": 3, "timestamp": "2026-01-01T00:00:00Z", "prompts": [], "results": list(rows), "stats": {}}
    path.write_text(json.dumps({"evalId": "e", "results": results, **document}))
    return path


def cached(output: str = "out", **fields) -> dict:
    return row(output, response={"output": output, "cached": True}, latencyMs=2, **fields)


@pytest.mark.parametrize("form", ["out.json", "out.jsonl", "out.csv"])
def test_all_forms_of_one_evaluation_give_the_same_verdicts(samples, form):
    (first, first_results), (second, second_results) = runs_of(samples("promptfoo") / form)
    assert (first.model, second.model) == ("echo", "echo")
    assert sorted(result.score for result in first_results["pass"]) == [0, 1]
    assert [result.score for result in second_results["pass"]] == [0, 0]
    assert [result.score for result in first_results["acc"]] == [0.0]
    assert sum(result.score for result in first_results["score"]) == 1.25  # metrics.score of the prompt
    assert {result.output for result in first_results["pass"]} == {"Say héllo 🙂", "Say b"}


def test_scores_equal_the_stated_ones_and_claims_say_so(samples):
    for run, results in runs_of(samples("promptfoo/out.json")):
        claims = {claim.metric: claim for claim in run.claims}
        scores = [result.score for result in results["score"]]
        assert sum(scores) / len(scores) == pytest.approx(claims["score"].value, abs=1e-12)
        passed = [result.score for result in results["pass"]]
        assert sum(passed) / len(passed) == claims["pass_rate"].value


def test_version_time_and_slices_are_kept(samples):
    run, results = runs_of(samples("promptfoo/out.json"))[0]
    assert run.source.writer_version == "0.121.20"
    assert run.started_at.isoformat() == "2026-11-30T05:48:19.733000+00:00"
    assert {"slice": "unicode"} in [result.slices for result in results["pass"]]


def test_a_failed_assertion_is_a_zero_though_error_is_filled(tmp_path):
    failed = row(success=False, score=0, error="Expected output to equal", failureReason=1)
    _, results = runs_of(written(tmp_path, failed))[0]
    assert (results["pass"][0].status, results["pass"][0].score) == ("scored", 0.0)


def test_an_answer_that_could_not_be_had_is_an_error_not_a_zero(tmp_path):
    failed = row(success=False, score=0, error="429 Too Many Requests", failureReason=2, gradingResult=None)
    run, results = runs_of(written(tmp_path, failed, row(test=1, vars={"x": "b"})))[0]
    assert [(result.status, result.score) for result in results["pass"]] == [("error", None), ("scored", 1.0)]
    assert "1 of 2 (50.00 %) answers could not be had" in told(run)


def test_row_16_5_repeats_from_the_cache_are_one_call(tmp_path):
    # promptfoo#360: --repeat 5 answers four times from its own cache
    rows = [row(test=0), *[cached(test=number) for number in range(1, 5)]]
    run, results = runs_of(written(tmp_path, *rows, runtimeOptions={"repeat": 5}))[0]
    assert len(results["pass"]) == 1
    assert "4 of 5 answers are repeats that promptfoo took from its cache: the same call, counted once" in told(run)


def test_row_16_5_repeats_that_were_asked_are_five_results(tmp_path):
    rows = [row(f"answer {number}", test=number) for number in range(5)]
    _, results = runs_of(written(tmp_path, *rows, runtimeOptions={"repeat": 5}))[0]
    assert [result.repeat for result in results["pass"]] == [0, 1, 2, 3, 4]
    assert len({result.problem for result in results["pass"]}) == 1


def test_row_16_the_time_that_a_cache_took_is_nobodys_latency(tmp_path):
    # promptfoo#1431, #6910
    run, results = runs_of(written(tmp_path, cached()))[0]
    assert results["pass"][0].latency_ms is None
    assert "answers from promptfoo's cache, whose latency is not known: 1" in told(run)
    _, asked = runs_of(written(tmp_path, row()))[0]
    assert asked["pass"][0].latency_ms == 250


def test_cached_tokens_are_promptfoos_own_and_the_providers_stand_in_the_details(tmp_path):
    details = {"cacheReadInputTokens": 60, "cacheCreationInputTokens": 10, "reasoning": 3}
    tokens = {"prompt": 100, "completion": 7, "cached": 0, "total": 107, "completionDetails": details}
    _, results = runs_of(written(tmp_path, row(tokenUsage=tokens)))[0]
    usage = results["pass"][0].usage
    assert (usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning) == (30, 60, 10, 7, 3)


def test_no_tokens_at_all_are_unknown(samples):
    _, results = runs_of(samples("promptfoo/out.json"))[0]
    assert {result.usage for result in results["pass"]} == {None}


def test_same_variables_with_other_assertions_are_another_problem(tmp_path):
    rows = [row(testCase={"assert": [{"type": "contains", "value": each}]}) for each in "ab"]
    _, results = runs_of(written(tmp_path, *rows))[0]
    assert len({result.problem for result in results["pass"]}) == 2


def test_an_answer_without_assertions_is_unscored(tmp_path):
    run, results = runs_of(written(tmp_path, row(gradingResult={"pass": True, "score": 1, "reason": "No assertions"})))[
        0
    ]
    assert results["pass"][0].status == "unscored"
    assert "answers without an assertion, passed by promptfoo and unscored here: 1" in told(run)


def test_a_score_off_the_scale_is_kept_raw(tmp_path):
    run, results = runs_of(written(tmp_path, row(score=1.7)))[0]
    assert (results["score"][0].score, results["score"][0].raw_score) == (None, 1.7)
    assert "scores outside [0, 1], kept raw and not scored: 1" in told(run)


def test_version_2_is_read_from_its_table(tmp_path):
    output = {
        "pass": False, "score": 0.5, "namedScores": {"acc": 1}, "text": "hi", "prompt": "Say a",
        "latencyMs": 9, "cost": 0.02, "provider": "openai:gpt-4", "gradingResult": {"pass": False, "reason": "no"},
    }  # fmt: skip
    table = {
        "head": {"prompts": [{"provider": "openai:gpt-4", "label": "Say {{x}}"}], "vars": ["x"]},
        "body": [{"outputs": [output], "vars": ["a"], "test": {"assert": []}}],
    }
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"results": {"version": 2, "results": [], "table": table, "stats": {}}, "config": {}}))
    ((run, results),) = runs_of(path)
    assert run.model == "openai:gpt-4"
    assert {scorer: of[0].score for scorer, of in results.items()} == {"pass": 0.0, "score": 0.5, "acc": 1.0}
    assert (results["pass"][0].output, results["pass"][0].latency_ms) == ("hi", 9)


def test_csv_says_what_it_lacks(samples):
    run, _ = runs_of(samples("promptfoo/out.csv"))[0]
    assert "promptfoo's CSV has scores to two places, and no tokens, costs or times" in told(run)


def test_keys_of_providers_are_not_kept(tmp_path):
    config = {"providers": [{"id": "openai:gpt-5", "config": {"apiKey": "sk-1", "temperature": 0}}]}
    run, results = runs_of(written(tmp_path, row(provider={"id": "p", "apiKey": "sk-2"}), config=config))[0]
    assert results["pass"][0].raw["provider"] == {"id": "p", "apiKey": "[left out]"}
    assert run.raw["config"]["providers"][0]["config"] == {"apiKey": "[left out]", "temperature": 0}


def test_another_file_is_refused(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"results": []}')
    with pytest.raises(Unreadable, match="neither promptfoo's JSON"):
        list(promptfoo.read(path))
