"""Any table with a mapping: columns, scales, labels, attempts, battles."""

import gzip
import json
import shutil
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from evals.importers import generic
from evals.importers.errors import Unreadable
from evals.importers.rows import MAX_RUNS
from evals.statistics.preferences import preference_rate


def written(folder: Path, text: str, mapping: dict | None = None, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_text(text)
    if mapping is not None:
        (folder / f"{name}.mapping.json").write_text(json.dumps(mapping))
    return path


def only(path: Path, mapping: generic.Mapping | None = None):
    (run,) = generic.read(path, mapping)
    return run, list(run.results)


def told(found) -> str:
    return "\n".join(f"{note.kind}: {note.text}" for note in found.notes)


def test_our_own_names_need_no_mapping(tmp_path):
    path = written(tmp_path, "problem,score,model,output,cost_usd,input_tokens\np1,0.5,m,hello,0.25,7\n")
    assert generic.recognises(path)
    run, (result,) = only(path)
    assert (run.model, run.benchmark) == ("m", "data")
    assert (result.problem, result.score, result.output, str(result.cost_usd), result.usage.input) == (
        "p1",
        0.5,
        "hello",
        "0.25",
        7,
    )


def test_a_mapping_beside_the_file_names_columns_constants_and_a_scale(tmp_path):
    mapping = {"benchmark": "vibes", "problem": "id", "model": {"value": "gpt-5"}, "score": "stars", "scale": [1, 5]}
    path = written(tmp_path, "id,stars,note\na,5,x\nb,2,y\n", mapping)
    assert generic.recognises(path)
    run, results = only(path)
    assert (run.benchmark, run.model) == ("vibes", "gpt-5")
    assert [(result.problem, result.score, result.raw_score) for result in results] == [
        ("a", 1.0, "5"),
        ("b", 0.25, "2"),
    ]
    assert results[0].raw == {"id": "a", "stars": "5", "note": "x"}


def test_labels_are_scores_and_what_is_no_label_is_unscored(tmp_path):
    mapping = {"problem": "id", "score": "verdict", "labels": {"PASS": 1, "FAIL": 0}}
    run, results = only(written(tmp_path, "id,verdict\na,PASS\nb,FAIL\nc,SKIPPED\nd,\n", mapping))
    assert [(result.status, result.score) for result in results] == [
        ("scored", 1.0), ("scored", 0.0), ("unscored", None), ("unscored", None),
    ]  # fmt: skip
    assert "2 of 4 (50.00 %) results are unscored" in told(run)
    assert "scores that are no label and not from 0 to 1, kept raw: 1" in told(run)


@pytest.mark.parametrize("cell", ["NaN", "inf", "1e999", "-1", "2", "", "n/a"])
def test_what_is_no_score_in_0_to_1_is_unscored(tmp_path, cell):
    _, (result,) = only(written(tmp_path, f"problem,score\na,{cell}\n"))
    assert (result.status, result.score) == ("unscored", None)


def test_a_stated_status_leaves_no_score_and_an_unknown_one_is_refused(tmp_path):
    _, results = only(written(tmp_path, "problem,score,status\na,0,infra\nb,1,scored\n"))
    assert [(result.status, result.score) for result in results] == [("infra", None), ("scored", 1.0)]
    run, *_ = generic.read(written(tmp_path, "problem,score,status\na,0,crashed\n"))
    with pytest.raises(Unreadable, match=r"data\.csv, row 1: status is 'crashed'"):
        list(run.results)


def test_json_columns_may_be_paths(tmp_path):
    mapping = {"problem": "case.id", "score": "grade.value", "output": "reply", "slices": {"kind": "case.kind"}}
    line = json.dumps(
        {"case": {"id": 7, "kind": "sum"}, "grade": {"value": True}, "reply": "x\u2028y"}, ensure_ascii=False
    )
    _, (result,) = only(written(tmp_path, f"{line}\n", mapping, name="data.jsonl"))
    assert (result.problem, result.score, result.output, result.slices) == ("7", 1.0, "x\u2028y", {"kind": "sum"})


def test_repeats_are_counted_where_no_column_tells_them(tmp_path):
    _, results = only(written(tmp_path, "problem,score\na,1\na,0\n"))
    assert [result.repeat for result in results] == [0, 1]


def test_a_column_that_is_not_there_is_named_with_those_that_are(tmp_path):
    with pytest.raises(Unreadable, match="score is column 'points'; there are id, stars"):
        list(generic.read(written(tmp_path, "id,stars\na,1\n", {"problem": "id", "score": "points"})))


@pytest.mark.parametrize(
    ("mapping", "complaint"),
    [
        ({"scor": "x"}, "unknown field `scor`"),
        ({"scale": [1, 1]}, "scale runs from 1 to 1"),
        ({"labels": {"a": 2}}, "labels are scores"),
    ],
)
def test_a_mapping_that_cannot_be_is_refused(tmp_path, mapping, complaint):
    with pytest.raises(Unreadable, match=complaint):
        list(generic.read(written(tmp_path, "problem,score\na,1\n", mapping)))


def test_a_table_without_a_row_is_refused(tmp_path):
    with pytest.raises(Unreadable, match="it has no row"):
        list(generic.read(written(tmp_path, "problem,score\n")))


def test_without_a_mapping_a_table_of_other_names_says_what_to_write(tmp_path):
    path = written(tmp_path, "id,stars\na,1\n")
    assert not generic.recognises(path)
    with pytest.raises(Unreadable, match=r"write data\.csv\.mapping\.json beside it"):
        list(generic.read(path))


def test_another_mapping_makes_another_run_of_the_same_file(tmp_path):
    path = written(tmp_path, "problem,score\na,1\n")
    (one,), (two,) = generic.read(path), generic.read(path, generic.Mapping(scale=(0, 2)))
    assert one.source == two.source
    assert one.run_id != two.run_id


def test_rows_longer_than_the_header_and_bytes_that_are_no_text_are_refused(tmp_path):
    with pytest.raises(Unreadable, match="3 cells under 2 columns"):
        list(generic.read(written(tmp_path, "problem,score\na,1,2\n")))
    path = tmp_path / "data.csv"
    path.write_bytes(b"problem,score\n\xff\xfe,1\n")
    with pytest.raises(Unreadable, match="not UTF-8"):
        list(generic.read(path, generic.RESULTS))


# --- battles ---


def test_an_unknown_winner_is_an_error_of_the_file_never_a_tie(tmp_path):
    (found,) = generic.read(written(tmp_path, "problem,left,right,winner\np,a,b,left\np,a,b,model a\n"))
    with pytest.raises(Unreadable, match=r"row 2: winner is 'model a'; it must be one of both_bad, error"):
        list(found.battles)


def test_winners_may_be_called_otherwise(tmp_path):
    mapping = {"kind": "battles", "winners": {"1": "left", "2": "right"}}
    (found,) = generic.read(written(tmp_path, "problem,left,right,winner\np,a,b,2\n", mapping))
    assert [battle.winner for battle in found.battles] == ["right"]


def test_8931_votes_of_people_are_read(samples):
    mapping = generic.Mapping(kind="battles", benchmark="llmfao", problem="prompt", rater="worker", by="person")
    (found,) = generic.read(samples("pairwise_llmfao/llmfao.csv"), mapping)
    battles = list(found.battles)
    assert Counter(battle.winner for battle in battles) == {"tie": 3471, "left": 2911, "right": 2549}
    assert len({name for battle in battles for name in (battle.left, battle.right)}) == 59
    assert len({battle.problem for battle in battles}) == 13
    assert len({battle.rater for battle in battles}) == 124


def test_alpacas_preferences_give_its_leaderboards_win_rates(samples, tmp_path):
    packed = samples("alpaca_eval/preferences_10models.csv.gz")
    path = tmp_path / "preferences.csv"
    with gzip.open(packed) as source, path.open("wb") as target:
        shutil.copyfileobj(source, target)
    mapping = generic.Mapping(
        kind="battles", problem="sha1_12", left=generic.Constant(value="gpt4_1106_preview"), right="model",
        preference="preference", preference_scale=(1, 2),
    )  # fmt: skip
    (found,) = generic.read(path, mapping)
    by_model = defaultdict(list)
    for battle in found.battles:
        by_model[battle.right].append(battle.preference)
    expected = json.loads(samples("EXPECTED.json").read_text())["alpaca_eval"]
    for model, board in expected.items():
        won = preference_rate(by_model[model])
        assert 100 * won.rate.value == pytest.approx(board["win_rate"], abs=1e-6)
        assert (won.wins, won.ties, won.rate.n) == (board["n_wins"], board["n_draws"], board["n_total"])


# --- several attempts in one cell ---


def test_the_outcomes_of_5_runs_are_repeats_and_no_verdict_is_unscored(samples):
    mapping = generic.Mapping(benchmark="terminal-bench", problem="task", model="agent", attempts="run_outcomes")
    runs = list(generic.read(samples("terminal-bench/matrix_13agents_80tasks_5runs.csv"), mapping))
    expected = json.loads(samples("EXPECTED.json").read_text())["terminal_bench"]
    assert {run.model for run in runs} == set(expected)
    for run in runs:
        results, board = list(run.results), expected[run.model]
        assert len(results) == board["n_trials"]
        assert sum(result.score or 0 for result in results) / len(results) == pytest.approx(
            board["accuracy"], abs=1e-12
        )
        assert sum(result.status == "unscored" for result in results) == board["n_null"]


def test_more_models_than_runs_can_be_made_of_one_file_are_refused(tmp_path):
    rows = "".join(f"p,1,m{number}\n" for number in range(MAX_RUNS + 1))
    with pytest.raises(Unreadable, match="more than 1000 models"):
        list(generic.read(written(tmp_path, f"problem,score,model\n{rows}")))
