"""AlpacaEval: preferences, failed annotations that its cache keeps, outputs, leaderboards."""

import json
from collections import Counter
from pathlib import Path

import pytest

from evals.importers import alpaca_eval
from evals.importers.errors import Unreadable

ANNOTATIONS = "alpaca_eval/annotations_head_text_davinci_001.json"


def annotation(number: int, preference: float | None, **fields) -> dict:
    return {
        "instruction": f"question {number}", "output_1": "base", "generator_1": "gpt4", "output_2": "mine",
        "generator_2": "m", "annotator": "judge", "preference": preference, **fields,
    }  # fmt: skip


def written(folder: Path, document: object) -> Path:
    path = folder / "annotations.json"
    path.write_text(json.dumps(document))
    return path


def only(path: Path):
    (found,) = alpaca_eval.read(path)
    return found, list(found.battles)


def told(found) -> str:
    return "\n".join(f"{note.kind}: {note.text}" for note in found.notes)


def test_the_baseline_is_left_and_preference_minus_one_is_how_sure_the_judge_is_of_the_right(samples):
    _, battles = only(samples(ANNOTATIONS))
    assert {(battle.left, battle.right, battle.rater) for battle in battles} == {
        ("gpt4_1106_preview", "text_davinci_001", "weighted_alpaca_eval_gpt4_turbo")
    }
    assert battles[0].preference == pytest.approx(1.108e-7, rel=1e-3)
    assert str(battles[0].cost_usd) == "0.00795"
    assert battles[0].problem == "fb5e4d4705fb"  # SHA-1 of the instruction


@pytest.mark.parametrize(
    ("stored", "winner", "preference"),
    [(1, "left", 0.0), (2, "right", 1.0), (1.5, "tie", 0.5), (0, "tie", 0.5), (1.8, "right", 0.8), (1.2, "left", 0.2)],
)
def test_a_stored_preference_becomes_a_winner(tmp_path, stored, winner, preference):
    _, (battle,) = only(written(tmp_path, [annotation(1, stored)]))
    assert (battle.winner, battle.preference) == (winner, pytest.approx(preference))


def test_row_20_3_of_10_null_preferences_leave_n_7_and_can_be_asked_again(tmp_path):
    # alpaca_eval#300, #340: a failed annotation is cached as null
    found, battles = only(written(tmp_path, [annotation(number, None if number < 3 else 2) for number in range(10)]))
    assert Counter(battle.winner for battle in battles) == {"error": 3, "right": 7}
    assert "3 of 10 annotations have no preference" in told(found)
    assert "n 7, coverage 70 %; they can be asked again" in told(found)


def test_row_20_no_annotation_at_all_is_no_data_not_nan(tmp_path):
    # alpaca_eval#453: no matches gave a win rate of NaN
    path = tmp_path / "annotations.json"
    path.write_text('[{"output_1": "", "output_2": "", "preference": null, "instruction": ""}]')
    found, battles = only(path)
    assert [battle.preference for battle in battles] == [None]
    assert "n 0, coverage 0 %" in told(found)


def test_a_judge_that_answered_without_a_verdict_is_invalid_not_a_tie(tmp_path):
    _, (battle,) = only(written(tmp_path, [annotation(1, None, raw_completion={"text": "As a judge, I"})]))
    assert battle.winner == "invalid"


def test_a_preference_off_the_scale_is_no_verdict(tmp_path):
    found, (battle,) = only(written(tmp_path, [annotation(1, 3.7)]))
    assert (battle.winner, battle.preference) == ("error", None)
    assert "preferences outside [1, 2]: 1" in told(found)


def test_the_same_pair_judged_twice_is_a_repeat(tmp_path):
    _, battles = only(written(tmp_path, [annotation(1, 1), annotation(1, 2)]))
    assert [battle.repeat for battle in battles] == [0, 1]


def test_outputs_are_unscored_results_of_each_generator(samples):
    (run,) = alpaca_eval.read(samples("alpaca_eval/model_outputs_head_gpt4_gamed.json"))
    results = list(run.results)
    assert (run.model, len(results), {result.status for result in results}) == ("gpt4_gamed", 6, {"unscored"})
    assert results[0].output == "Many famou"
    assert results[0].slices == {"dataset": "helpful_base"}


def test_a_leaderboards_rows_are_claims_without_results(samples):
    runs = list(alpaca_eval.read(samples("alpaca_eval/leaderboard_weighted_gpt4_turbo.csv")))
    claims = {run.model: {claim.metric: claim for claim in run.claims} for run in runs}
    raw = claims["claude-2"]["win_rate"]
    assert (f"{100 * raw.value:.5f}", f"{100 * raw.stderr:.6f}", raw.n) == ("17.18824", "1.174828", 805)
    assert f"{100 * claims['claude-2']['discrete_win_rate'].value:.6f}" == "16.335404"
    assert f"{100 * claims['NullModel']['win_rate'].value:.6f}" == "76.919792"
    assert claims["text_davinci_001"]["win_rate"].n == 803
    assert not any(list(run.results) for run in runs)


def test_a_model_that_stands_in_two_rows_is_two_runs(samples):
    runs = list(alpaca_eval.read(samples("alpaca_eval/leaderboard_weighted_gpt4_turbo.csv")))
    assert len({run.run_id for run in runs}) == len(runs)


def test_a_share_that_cannot_be_one_is_left_out_and_told(tmp_path):
    path = tmp_path / "leaderboard.csv"
    path.write_text(",win_rate,standard_error,n_total\nm,337.0,1.0,805\n")
    (run,) = alpaca_eval.read(path)
    assert run.claims == []
    assert "win_rate is 337.0: no share, left out" in told(run)


def test_another_file_is_refused(tmp_path):
    with pytest.raises(Unreadable, match="neither annotations"):
        list(alpaca_eval.read(written(tmp_path, [{"a": 1}])))
