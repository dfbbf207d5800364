"""Every results file of these formats imports, through the importer that recognises it, and fits what is stored."""

import json
from pathlib import Path

import pytest

from evals.importers import registry
from evals.importers.record import Run
from evals.services.imported_checks import check_battle, check_result
from evals.services.raw_records import fitted

FORMATS = {
    "swebench": "swebench",
    "helm": "helm",
    "harbor": "harbor",
    "terminal-bench": "terminal_bench",
    "mt_bench": "mt_bench",
    "openai_evals": "openai_evals",
    "promptfoo": "promptfoo",
    "alpaca_eval": "alpaca_eval",
}
NO_RESULTS = {  # what lies beside results: settings, weights, a difficulty, a reduction that needs a mapping
    "droid_gpt5_run1.run_metadata.json",
    "promptfooconfig.yaml",
    "matrix_13agents_80tasks_5runs.csv",
    "evaluators_leaderboard.csv",
    "lc_weights_length_controlled_v1.csv",
    "instruction_difficulty_recovered.csv",
    "preferences_10models.csv.gz",
}


@pytest.mark.parametrize("folder", FORMATS)
def test_every_results_file_is_recognised_by_its_own_importer_only(samples, folder):
    found = 0
    for path in sorted(samples(folder).iterdir()):
        known = [importer.FORMAT for importer in registry.importers() if importer.recognises(path)]
        assert known == ([] if path.name in NO_RESULTS else [FORMATS[folder]]), path.name
        found += bool(known)
    assert found


@pytest.mark.parametrize("folder", FORMATS)
def test_every_result_and_battle_of_a_folder_can_be_stored(samples, folder):
    found = registry.find(samples(folder))
    assert {path.name for path in found.unknown} <= NO_RESULTS
    num_items = 0
    for importer, path in found.readable:
        for imported in importer.read(path):
            keys = set()
            assert imported.source.format == FORMATS[folder]
            assert len(imported.source.sha256) == 64
            for place, item in enumerate(imported.results if isinstance(imported, Run) else imported.battles):
                if isinstance(imported, Run):
                    check_result(item, place=place)
                    key = (item.problem, item.scorer, item.repeat)
                else:
                    check_battle(item, place=place)
                    key = (item.problem, item.left, item.right, item.rater, item.repeat)
                assert key not in keys, f"{path.name}: {key} twice"
                keys.add(key)
                json.dumps(fitted(item.raw)[0], allow_nan=False)
                num_items += 1
            json.dumps(imported.notes and [note.text for note in imported.notes])
    assert num_items > 0


@pytest.mark.parametrize("folder", FORMATS)
def test_reading_twice_gives_the_same(samples, folder):
    def digest() -> list:
        found = registry.find(samples(folder)).readable
        return [
            (
                run.benchmark,
                run.run_id,
                list(run.results if isinstance(run, Run) else run.battles),
                run.notes,
                run.claims,
            )
            for importer, path in found
            for run in importer.read(path)
        ]

    assert digest() == digest()


def test_nothing_is_written_beside_what_is_read(samples):
    before = {path: path.stat().st_mtime_ns for path in Path(samples()).rglob("*")}
    for folder in FORMATS:
        for importer, path in registry.find(samples(folder)).readable:
            for run in importer.read(path):
                list(run.results if isinstance(run, Run) else run.battles)
    assert {path: path.stat().st_mtime_ns for path in Path(samples()).rglob("*")} == before
