"""The Arena's battles and Arena-Hard's judgments: labels, both orders, missing games."""

import json
from collections import Counter
from pathlib import Path

import pytest

from evals.importers import arena
from evals.importers.errors import Unreadable


def written(folder: Path, *rows: dict, name: str = "battles.jsonl") -> Path:
    path = folder / name
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def battle(winner: str, **fields) -> dict:
    return {
        "question_id": "q",
        "model_a": "a",
        "model_b": "b",
        "winner": winner,
        "judge": "arena_user_1",
        "anony": True,
        **fields,
    }


def judgment(first: str | None, second: str | None, **fields) -> dict:
    games = [None if label == "missing" else {"score": label, "judgment": {}} for label in (first, second)]
    return {
        "uid": "u",
        "category": "hard_prompt",
        "judge": "gpt",
        "model": "m",
        "baseline": "o3",
        "games": games,
        **fields,
    }


def only(path: Path):
    (found,) = arena.read(path)
    return found, list(found.battles)


def told(found) -> str:
    return "\n".join(f"{note.kind}: {note.text}" for note in found.notes)


@pytest.mark.parametrize(
    ("label", "winner"),
    [
        ("model_a", "left"),
        ("model_b", "right"),
        ("tie", "tie"),
        ("tie (bothbad)", "both_bad"),
        ("both_bad", "both_bad"),
    ],
)
def test_labels_of_the_arena_are_kept_apart(tmp_path, label, winner):
    _, (found,) = only(written(tmp_path, battle(label)))
    assert (found.winner, found.by, found.rater) == (winner, "person", "arena_user_1")


@pytest.mark.parametrize("label", ["model a", "", None, "Model_A", 1])
def test_row_22_an_unknown_winner_is_an_error_of_the_file_never_a_tie(tmp_path, label):
    # arena-rank's data_utils takes what it does not know for a tie
    path = written(tmp_path, battle("model_a"), battle(label))
    (found,) = arena.read(path)
    with pytest.raises(Unreadable, match=r"jsonl:2: winner is .*; it must be one of model_a, model_b, tie"):
        list(found.battles)


def test_battles_as_one_list_are_read(tmp_path):
    path = tmp_path / "battles.json"
    path.write_text(json.dumps([battle("model_a"), battle("tie")]))
    _, battles = only(path)
    assert [(each.winner, each.repeat) for each in battles] == [("left", 0), ("tie", 1)]


def test_a_battle_without_an_id_is_named_after_what_was_asked(tmp_path):
    asked = [{"role": "user", "content": "why?"}, {"role": "assistant", "content": "because"}]
    first = battle("tie", conversation_a=asked) | {"question_id": None}
    second = battle("tie", conversation_a=asked, model_a="c") | {"question_id": None}
    _, battles = only(written(tmp_path, first, second))
    assert battles[0].problem == battles[1].problem
    assert battles[0].left_text == "because"


def test_style_counts_language_and_time_are_kept(tmp_path):
    raw = battle("tie", language="English", tstamp=1700000000.5, conv_metadata={"sum_assistant_a_tokens": 12})
    _, (found,) = only(written(tmp_path, raw))
    assert found.raw["conv_metadata"] == {"sum_assistant_a_tokens": 12}
    assert found.slices["language"] == "English"
    assert found.at.isoformat() == "2023-11-14T22:13:20.500000+00:00"


def test_battles_that_were_not_anonymous_are_told(tmp_path):
    found, _ = only(written(tmp_path, battle("tie", anony=False), battle("tie")))
    assert "1 of 2 (50.00 %) battles were not anonymous" in told(found)


@pytest.mark.parametrize(
    ("baseline_as_a", "model_as_a", "winner", "preference"),
    [
        ("B>A", "A>B", "right", 1.0),  # the model wins both
        ("A>>B", "B>>A", "left", 0.0),
        ("A=B", "A=B", "tie", 0.5),
        ("A>B", "A>B", "tie", 0.5),  # whoever is A wins: the order decided
        ("A>>B", "A>B", "left", 0.25),  # a strong loss, three times, against one win
        ("B<<A", "A>B", "left", 0.25),
    ],
)
def test_in_arena_hard_the_baseline_is_a_first_and_strong_verdicts_weigh_three_times(
    tmp_path, baseline_as_a, model_as_a, winner, preference
):
    _, (found,) = only(written(tmp_path, judgment(baseline_as_a, model_as_a)))
    assert (found.left, found.right) == ("o3", "m")
    assert (found.winner, found.preference) == (winner, pytest.approx(preference))
    assert found.slices == {"category": "hard_prompt"}


def test_a_pair_with_a_missing_game_or_verdict_has_none_and_is_counted(tmp_path):
    path = written(
        tmp_path, judgment("missing", "A>B"), judgment(None, "A>B"), judgment("A=B", "A=B"), judgment("A>B", "A>B")
    )
    found, battles = only(path)
    assert Counter(each.winner for each in battles) == {"error": 1, "invalid": 1, "tie": 2}
    assert "2 of 4 (50.00 %) pairs lack a game or its verdict" in told(found)


def test_an_unknown_verdict_of_arena_hard_is_an_error_of_the_file(tmp_path):
    (found,) = arena.read(written(tmp_path, judgment("A wins", "A>B")))
    with pytest.raises(Unreadable, match="score is 'A wins'"):
        list(found.battles)


def test_old_judgments_name_no_baseline_and_that_is_told(tmp_path):
    old = judgment("B>A", "A>B")
    old["question_id"] = old.pop("uid")
    del old["baseline"]
    found, (each,) = only(written(tmp_path, old))
    assert each.left == "gpt-4-0314"
    assert "assumed: records without a baseline: 1" in told(found)
