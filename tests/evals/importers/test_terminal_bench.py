"""Terminal-Bench: trials without a verdict, several attempts, tokens that nobody counted."""

import csv
import json
from collections import defaultdict
from pathlib import Path

import pytest

from evals.importers import terminal_bench
from evals.importers.errors import Unreadable
from evals.statistics.denominators import pass_rates
from evals.statistics.pass_at import pass_at_k


def only(path: Path):
    runs = list(terminal_bench.read(path))
    assert len(runs) == 1
    return runs[0], list(runs[0].results)


def told(run) -> str:
    return "\n".join(f"{note.kind}: {note.text}" for note in run.notes)


def trial(task: str, verdict: bool | None, *, attempt: int = 1, **fields) -> dict:
    name = f"{task}.{attempt}-of-5.run"
    mode = "parse_error" if verdict is None else "unset"
    return {"id": name, "trial_name": name, "task_id": task, "is_resolved": verdict, "failure_mode": mode, **fields}


def written(folder: Path, trials: list[dict], **summary) -> Path:
    path = folder / "results.json"
    path.write_text(json.dumps({"id": "x", "results": trials, **summary}))
    return path


@pytest.fixture
def agent(samples, tmp_path):
    """agent("20250902_orchestrator...") -> results.json with the 400 real outcomes of that agent."""

    def write(name: str) -> Path:
        with (samples("terminal-bench") / "matrix_13agents_80tasks_5runs.csv").open() as file:
            rows = [row for row in csv.DictReader(file) if row["agent"] == name]
        verdicts = {"1": True, "0": False}
        trials = [
            trial(row["task"], verdicts.get(outcome), attempt=attempt)
            for row in rows
            for attempt, outcome in enumerate(row["run_outcomes"], start=1)
        ]
        accuracy = sum(each["is_resolved"] is True for each in trials) / len(trials)
        return written(tmp_path, trials, accuracy=accuracy, n_resolved=round(accuracy * len(trials)))

    return write


def test_29_of_400_trials_without_a_verdict_keep_both_denominators(agent):
    run, results = only(agent("20250902_orchestrator_claude-4-sonnet"))
    resolved = sum(result.score or 0 for result in results)
    assert (resolved, len(results)) == (144, 400)
    assert sum(result.status != "scored" for result in results) == 29
    assert run.claims[0].value == resolved / len(results) == 0.36
    assert "144 of 400 (36.00 %), of those with a verdict 144 of 371 (38.81 %)" in told(run)


def test_pass_at_k_of_the_imported_attempts_is_the_files_own(agent):
    # stored in the run's own file: {2: .48625, 4: .56, 5: .575}
    _, results = only(agent("20250906_orchestrator_claude-4.1-opus"))
    by_task = defaultdict(list)
    for result in results:
        by_task[result.problem].append(result.score or 0)
    tries = [(round(sum(scores)), len(scores)) for scores in by_task.values()]
    for k, stored in {2: 0.48625, 4: 0.56, 5: 0.575}.items():
        assert pass_at_k(tries, k).value == pytest.approx(stored, abs=1e-9)


def test_63_of_80_trials_without_a_verdict_are_a_warning(tmp_path):
    trials = [trial(f"task-{number}", None if number < 63 else number % 2 == 0) for number in range(80)]
    run, results = only(written(tmp_path, trials, accuracy=0.1125))
    assert "79 % of trials have no verdict (63 of 80: 63 parse_error)" in told(run)
    assert sum(result.status == "infra" for result in results) == 63


def test_strict_and_scoreable_shares_are_both_named(tmp_path):
    # CherryHQ/stella#1054: 238 passed, 405 with a verdict, 445 in all
    verdicts = [True] * 238 + [False] * 167 + [None] * 40
    run, results = only(written(tmp_path, [trial(f"t{number}", verdict) for number, verdict in enumerate(verdicts)]))
    rates = pass_rates(
        passed=sum(result.score == 1 for result in results),
        with_verdict=sum(result.status == "scored" for result in results),
        asked=len(results),
    )
    assert (f"{rates.strict.value:.1%}", f"{rates.scoreable.value:.1%}") == ("53.5%", "58.8%")
    assert "238 of 445 (53.48 %), of those with a verdict 238 of 405 (58.77 %)" in told(run)


def test_a_real_run_gives_its_stated_accuracy_and_names_what_is_missing(samples):
    run, results = only(samples("terminal-bench/droid_gpt5_run1.results.json"))
    assert sum(result.score or 0 for result in results) / len(results) == run.claims[0].value == 0.4875
    assert (run.benchmark, run.benchmark_version, run.model) == ("terminal-bench-core", "0.1.1", "Factory Droid")
    assert (run.run_id, run.settings["run_id"]) == ("6f7b2575-5549-4c5e-90cf-df1f14d38d98", "tb_rc2_g5_1")
    assert "run_metadata.json names no model" in told(run)
    assert "trials that ran out of time and are resolved all the same: 3" in told(run)


def test_no_tokens_are_unknown_not_free(samples):
    run, results = only(samples("terminal-bench/droid_gpt5_run1.results.json"))
    assert {result.usage for result in results} == {None}
    assert {result.cost_usd for result in results} == {None}
    assert "unknown, not free" in told(run)


def test_tokens_that_were_counted_are_kept(tmp_path):
    _, results = only(written(tmp_path, [trial("a", True, total_input_tokens=7, total_output_tokens=3)]))
    assert (results[0].usage.input, results[0].usage.output) == (7, 3)


def test_without_its_metadata_a_run_has_no_model(samples):
    run, _ = only(samples("terminal-bench/droid_sonnet4_run1.results.json"))
    assert run.model is None
    assert "no run_metadata.json lies beside" in told(run)


def test_attempts_are_repeats_and_a_trial_that_stands_twice_counts_once(tmp_path):
    trials = [trial("a", True, attempt=1), trial("a", False, attempt=2), trial("a", True, attempt=1)]
    _, results = only(written(tmp_path, trials))
    assert [(result.repeat, result.score) for result in results] == [(0, 1.0), (1, 0.0)]


def test_an_agent_that_crashed_is_an_error_a_parser_that_failed_is_infra(tmp_path):
    trials = [trial("a", None) | {"failure_mode": "unknown_agent_error"}, trial("b", None)]
    _, results = only(written(tmp_path, trials))
    assert [result.status for result in results] == ["error", "infra"]


def test_a_runs_folder_is_read_without_counting_the_trials_own_records(tmp_path):
    written(tmp_path, [trial("a", True)])
    own = tmp_path / "a" / "a.1-of-5.run"
    own.mkdir(parents=True)
    (own / "results.json").write_text(json.dumps(trial("a", True)))
    _, results = only(tmp_path)
    assert len(results) == 1


def test_a_link_in_a_folder_is_not_followed(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    written(elsewhere, [trial("a", True)])
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "results.json").symlink_to(elsewhere / "results.json")
    assert not terminal_bench.recognises(folder)
    with pytest.raises(Unreadable, match=r"no results\.json"):
        list(terminal_bench.read(folder))


def test_a_trials_own_record_is_refused(tmp_path):
    path = tmp_path / "results.json"
    path.write_text(json.dumps(trial("a", True)))
    assert not terminal_bench.recognises(path)
    with pytest.raises(Unreadable, match="no results of a run"):
        list(terminal_bench.read(path))


def test_a_run_without_trials_is_no_data(tmp_path):
    run, results = only(written(tmp_path, [], accuracy=0.0))
    assert results == []
    assert "no data: the file has no trials" in told(run)


def test_a_count_that_differs_from_the_trials_is_told(tmp_path):
    run, _ = only(written(tmp_path, [trial("a", True)], n_resolved=4))
    assert "n_resolved is 4, resolved trials are 1" in told(run)
