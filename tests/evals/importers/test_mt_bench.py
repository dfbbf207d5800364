"""MT-bench: marks that could not be parsed, pairs in both orders, votes of people."""

import json
from pathlib import Path

import pytest

from evals.importers import mt_bench
from evals.importers.errors import Unreadable


def written(folder: Path, *rows: dict) -> Path:
    path = folder / "judgments.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def mark(score: object, question: int = 81, **fields) -> dict:
    return {
        "question_id": question, "model": "m", "judge": ["gpt-4", "single-v1"], "user_prompt": "", "judgment": "",
        "score": score, "turn": 1, **fields,
    }  # fmt: skip


def pair(first: str, second: str) -> dict:
    return {
        "question_id": 81, "model_1": "a", "model_2": "b", "g1_winner": first, "g2_winner": second,
        "judge": ["gpt-4", "pair-v2"], "turn": 1, "tstamp": 1.0,
    }  # fmt: skip


def battles_of(path: Path):
    (found,) = mt_bench.read(path)
    return found, list(found.battles)


def told(found) -> str:
    return "\n".join(f"{note.kind}: {note.text}" for note in found.notes)


def test_a_mark_that_could_not_be_parsed_is_unscored_and_told(samples):
    (run,) = mt_bench.read(samples("mt_bench/gpt-4_single_excerpt.jsonl"))
    results = list(run.results)
    assert [(result.status, result.score, result.raw_score) for result in results] == [
        ("unscored", None, -1), ("scored", 1.0, 10), ("unscored", None, -1),
    ]  # fmt: skip
    assert (run.model, results[0].scorer, results[2].problem) == ("granite-7b-lab", "gpt-4", "104, turn 2")
    assert "2 of 3 (66.67 %) judgments could not be parsed (-1): unscored" in told(run)


@pytest.mark.parametrize(
    ("mark_given", "score"), [(1, 0.0), (10, 1.0), (5.5, 0.5), (0, None), (11, None), (None, None)]
)
def test_marks_from_1_to_10_become_shares(tmp_path, mark_given, score):
    (run,) = mt_bench.read(written(tmp_path, mark(mark_given)))
    (result,) = run.results
    assert result.score == score
    assert "marks from 1 to 10 became (mark - 1) / 9" in told(run)


def test_each_model_of_a_file_is_a_run_and_each_turn_a_problem(tmp_path):
    path = written(tmp_path, mark(3), mark(4, model="n"), mark(5, turn=2))
    found = {run.model: [result.problem for result in run.results] for run in mt_bench.read(path)}
    assert found == {"m": ["81, turn 1", "81, turn 2"], "n": ["81, turn 1"]}


@pytest.mark.parametrize(
    ("first", "second", "winner"),
    [
        ("model_1", "model_1", "left"), ("model_2", "model_2", "right"), ("tie", "tie", "tie"),
        ("model_1", "model_2", "tie"), ("model_1", "tie", "tie"), ("error", "model_1", "error"),
    ],
)  # fmt: skip
def test_a_pair_is_won_only_when_both_orders_say_so(tmp_path, first, second, winner):
    _, (battle,) = battles_of(written(tmp_path, pair(first, second)))
    assert (battle.left, battle.right, battle.winner, battle.rater) == ("a", "b", winner, "gpt-4/pair-v2")
    assert battle.raw["g1_winner"] == first


def test_pairs_that_the_order_decided_are_told(samples):
    found, battles = battles_of(samples("mt_bench/SYNTHETIC_pair_per_common_py.jsonl"))
    assert [battle.winner for battle in battles] == ["tie", "error"]
    assert "1 of 2 (50.00 %) pairs ended in an error" in told(found)
    assert "1 of 1 (100.00 %) pairs were judged differently when swapped" in told(found)


def test_an_unknown_winner_is_an_error_of_the_file_never_a_tie(tmp_path):
    (found,) = mt_bench.read(written(tmp_path, pair("model 1", "model_1")))
    with pytest.raises(Unreadable, match=r"jsonl:1: g1_winner is 'model 1'; it must be one of model_1, model_2"):
        list(found.battles)


def test_votes_of_people_are_theirs(tmp_path):
    vote = {
        "question_id": 81, "model_a": "a", "model_b": "b", "winner": "model_b", "judge": "expert_0", "turn": 1,
        "conversation_a": [], "conversation_b": [],
    }  # fmt: skip
    _, (battle,) = battles_of(written(tmp_path, vote))
    assert (battle.by, battle.rater, battle.winner) == ("person", "expert_0", "right")
