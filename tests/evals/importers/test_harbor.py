"""Harbor: rewards beside errors, trials without a reward, tokens with and without a cache, times without a zone."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

from evals.importers import harbor
from evals.importers.errors import Unreadable

JOB = "harbor/job_result_tb2_opencode_qwen.json"


def only(path: Path):
    runs = list(harbor.read(path))
    assert len(runs) == 1
    return runs[0], list(runs[0].results)


def told(run) -> str:
    return "\n".join(f"{note.kind}: {note.text}" for note in run.notes)


def trial(name: str = "fix-git__abc", **fields) -> dict:
    return {
        "task_name": name.rpartition("__")[0], "trial_name": name, "task_checksum": "c", "source": "tb2",
        "agent_info": {"name": "agent", "version": "1", "model_info": {"name": "m", "provider": "p"}},
        "verifier_result": {"rewards": {"reward": 1.0}}, **fields,
    }  # fmt: skip


def job(*trials: dict, **fields) -> dict:
    return {"id": "j", "n_total_trials": len(trials), "stats": {"evals": {}}, "trial_results": list(trials), **fields}


def written(folder: Path, document: dict) -> Path:
    path = folder / "result.json"
    path.write_text(json.dumps(document))
    return path


def test_the_mean_of_a_real_job_is_27_of_89_though_5_trials_ended_in_an_error(samples):
    run, results = only(samples(JOB))
    assert (sum(result.score for result in results), len(results)) == (27, 89)
    assert run.claims[0].value == pytest.approx(27 / 89, abs=1e-15)
    assert f"{run.claims[0].value:.10f}" == "0.3033707865"
    assert "trials that ended in an error: 5 (4 AgentTimeoutError, 1 NonZeroAgentExitCodeError)" in told(run)
    assert "with a reward all the same, which counts: 5" in told(run)


def test_row_18_errored_and_completed_may_be_more_than_the_total(samples):
    run, _ = only(samples(JOB))
    assert "89 completed and 5 errored trials are more than 89: a trial may be both" in told(run)


def test_agent_model_and_data_set_come_from_the_key(samples):
    run, results = only(samples(JOB))
    assert (run.benchmark, run.model) == ("terminal-bench/terminal-bench-2", "opencode / qwen3.6-35b")
    assert results[0].problem == "regex-log"


def test_a_time_without_a_zone_is_taken_as_utc_and_told(samples):
    run, _ = only(samples(JOB))
    assert run.started_at.isoformat() == "2026-06-08T09:33:27.505804+00:00"
    assert "assumed: the job's times have no zone: taken as UTC" in told(run)


def test_a_null_cost_is_unpriced_and_tokens_are_the_whole_jobs(samples):
    run, results = only(samples(JOB))
    assert {result.cost_usd for result in results} == {None}
    assert "unpriced, not free" in told(run)
    assert {claim.metric: claim.value for claim in run.claims}["n_input_tokens"] == 47607780


def test_a_trial_without_a_reward_is_masked_and_both_shares_are_told(tmp_path):
    failed = trial("b__x", verifier_result=None, exception_info={"exception_type": "EnvironmentStartTimeoutError"})
    run, results = only(written(tmp_path, job(trial("a__x"), failed)))
    assert [(result.status, result.score) for result in results] == [("scored", 1.0), ("infra", None)]
    assert (
        "1 of 2 trials have no reward; Harbor's mean takes them as 0, 1 of 2 (50.00 %), of those with a reward 1 of 1"
        in told(run)
    )


def test_an_agents_own_failure_is_an_error(tmp_path):
    failed = trial(verifier_result=None, exception_info={"exception_type": "AgentTimeoutError"})
    _, results = only(written(tmp_path, job(failed)))
    assert results[0].status == "error"


def test_cached_tokens_are_taken_off_the_input(tmp_path):
    usage = {"n_input_tokens": 100, "n_cache_tokens": 80, "n_output_tokens": 5, "cost_usd": 0.25}
    _, results = only(written(tmp_path, job(trial(agent_result=usage))))
    assert (results[0].usage.input, results[0].usage.cache_read, results[0].usage.output) == (20, 80, 5)
    assert results[0].cost_usd == Decimal("0.25")


def test_row_13_a_cache_larger_than_the_input_is_flagged_not_clamped(tmp_path):
    run, results = only(written(tmp_path, job(trial(agent_result={"n_input_tokens": 10, "n_cache_tokens": 20}))))
    assert results[0].usage.input is None
    assert "trials that read more from a cache than they took in, input unknown: 1" in told(run)


def test_the_usage_of_a_trial_with_steps_is_their_sum(tmp_path):
    steps = [{"agent_result": {"n_input_tokens": 10, "n_output_tokens": 1, "cost_usd": 0.5}}] * 2
    _, results = only(written(tmp_path, job(trial(step_results=steps))))
    assert (results[0].usage.input, results[0].usage.output, results[0].cost_usd) == (20, 2, Decimal("1.0"))


def test_each_reward_is_a_scorer_and_one_off_the_scale_is_kept_raw(tmp_path):
    rewards = {"reward": 0.5, "speed": 3.2}
    run, results = only(written(tmp_path, job(trial(verifier_result={"rewards": rewards}))))
    assert {result.scorer: (result.status, result.score, result.raw_score) for result in results} == {
        "reward": ("scored", 0.5, None),
        "speed": ("unscored", None, 3.2),
    }
    assert "rewards outside [0, 1], kept raw and not scored: 1" in told(run)


def test_a_reward_that_harbor_calls_invalid_is_no_score(tmp_path):
    _, results = only(written(tmp_path, job(trial(reward_valid=False))))
    assert (results[0].status, results[0].score) == ("infra", None)


def test_attempts_at_one_task_are_repeats(tmp_path):
    _, results = only(written(tmp_path, job(trial("a__x"), trial("a__y"))))
    assert [(result.problem, result.repeat) for result in results] == [("a", 0), ("a", 1)]


def test_a_jobs_folder_is_read_with_its_trials_records(tmp_path):
    written(tmp_path, {"id": "j", "n_total_trials": 2, "stats": {"evals": {"agent__m__tb2": {"n_trials": 2}}}})
    for name in ("a__x", "b__x"):
        (tmp_path / name).mkdir()
        written(tmp_path / name, trial(name))
    assert harbor.recognises(tmp_path)
    run, results = only(tmp_path)
    assert (run.benchmark, run.model, len(results)) == ("tb2", "agent / m", 2)


def test_a_trials_own_folder_is_a_run_of_one(tmp_path):
    written(tmp_path, trial())
    assert harbor.recognises(tmp_path)
    _, results = only(tmp_path)
    assert [result.problem for result in results] == ["fix-git"]


def test_old_names_and_a_status_block_do_no_harm(tmp_path):
    stats = {
        "n_trials": 1,
        "n_errors": 0,
        "evals": {"a__m__d": {"n_trials": 1, "reward_stats": {"reward": {"1.0": ["t__x"]}}}},
    }
    _, results = only(written(tmp_path, {"id": "j", "status": {"finished": True}, "stats": stats}))
    assert [result.score for result in results] == [1.0]


def test_trials_that_nobody_names_are_told(tmp_path):
    stats = {"n_trials": 3, "evals": {"a__m__d": {"n_trials": 3, "reward_stats": {"reward": {"1.0": ["t__x"]}}}}}
    run, _ = only(written(tmp_path, {"id": "j", "n_total_trials": 3, "stats": stats}))
    assert "n_trials is 3, 1 trials are named" in told(run)


def test_another_file_is_refused(tmp_path):
    with pytest.raises(Unreadable, match="neither a job"):
        list(harbor.read(written(tmp_path, {"stats": {}})))
