"""Whatever is in a file, the importers say Unreadable or read what can be stored, and write nothing."""

import json
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evals.importers import (
    alpaca_eval,
    arena,
    generic,
    harbor,
    helm,
    mt_bench,
    openai_evals,
    promptfoo,
    swebench,
    terminal_bench,
)
from evals.importers.errors import Unreadable
from evals.importers.record import Run
from evals.services.imported_checks import check_battle, check_result
from evals.services.raw_records import fitted
from registry.errors import InvalidInput
from tests.evals.importers.damage import damaged

FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
SAMPLES = {
    "swebench/org__model-x.run1.json": swebench,
    "swebench/instance_report_django__django-11099.json": swebench,
    "swebench/preds.jsonl": swebench,
    "harbor/job_result_tb2_opencode_qwen.json": harbor,
    "terminal-bench/droid_gpt5_run1.results.json": terminal_bench,
    "alpaca_eval/annotations_head_text_davinci_001.json": alpaca_eval,
    "alpaca_eval/model_outputs_head_gpt4_gamed.json": alpaca_eval,
    "alpaca_eval/leaderboard_weighted_gpt4_turbo.csv": alpaca_eval,
    "mt_bench/gpt-4_single_excerpt.jsonl": mt_bench,
    "mt_bench/SYNTHETIC_pair_per_common_py.jsonl": mt_bench,
    "openai_evals/SYNTHETIC_from_record_py.jsonl": openai_evals,
    "promptfoo/out.json": promptfoo,
    "promptfoo/out.jsonl": promptfoo,
    "promptfoo/out.csv": promptfoo,
}
# A record that each reader knows, small enough to be damaged field by field.
ARENA = [
    {
        "question_id": "q",
        "model_a": "a",
        "model_b": "b",
        "winner": "tie",
        "anony": True,
        "conversation_a": [{"role": "user"}],
    }
]
ARENA_HARD = [{"uid": "u", "judge": "j", "model": "m", "baseline": "b", "games": [{"score": "A>B"}, {"score": "A=B"}]}]
HARBOR_TRIALS = {
    "id": "j", "n_total_trials": 1, "stats": {"evals": {}, "n_trials": 1},
    "trial_results": [{
        "trial_name": "t__x", "task_name": "t", "task_checksum": "c",
        "agent_info": {"name": "a", "model_info": {"name": "m"}},
        "verifier_result": {"rewards": {"reward": 1}}, "agent_result": {"n_input_tokens": 3, "n_cache_tokens": 1},
        "agent_execution": {"started_at": "2026-01-01T00:00:00", "finished_at": "2026-01-01T00:00:01Z"},
    }],
}  # fmt: skip
PROMPTFOO_2 = {"results": {"version": 2, "results": [], "table": {
    "head": {"prompts": [{"provider": "p", "label": "l"}], "vars": ["x"]},
    "body": [{
        "outputs": [{"pass": True, "score": 1, "text": "t", "latencyMs": 2}], "vars": ["a"], "test": {"assert": []},
    }],
}}, "config": {}}  # fmt: skip
GENERIC = [
    {"problem": "p", "score": 0.5, "model": "m", "status": "scored", "cost_usd": 1, "latency_ms": 2, "repeat": 0}
]
SMALL = {
    "arena": (arena, ARENA), "arena-hard": (arena, ARENA_HARD), "harbor-trials": (harbor, HARBOR_TRIALS),
    "promptfoo-2": (promptfoo, PROMPTFOO_2), "generic": (generic, GENERIC),
}  # fmt: skip

leaves = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8)
    | st.sampled_from(["\0", "\ud800", "x" * 300, "1e999", "NaN", "2026-01-01", "../../etc/passwd", "model a"])
)  # fmt: skip
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
damages = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True), st.sampled_from(["cut", "flip", "double", "drop"]), st.integers(0, 255)
    ),
    min_size=1, max_size=3,
)  # fmt: skip


def places(document: object, at: tuple = ()) -> list[tuple]:
    """The way to every value below the top."""
    below = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [way for key, value in below for way in [(*at, key), *places(value, (*at, key))]]


def replaced(document, way: tuple, value: object):
    if not way:
        return value
    copied = dict(document) if isinstance(document, dict) else list(document)
    copied[way[0]] = replaced(copied[way[0]], way[1:], value)
    return copied


def read_all(importer, path: Path) -> int:
    """Read as an import does; how many items it had. Nothing but Unreadable may come out, and nothing be written."""
    folder = path.parent if path.is_file() else path
    before = {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}
    importer.recognises(path)
    num_items = 0
    try:
        for imported in importer.read(path):
            is_run = isinstance(imported, Run)
            for place, item in enumerate(imported.results if is_run else imported.battles):
                num_items += 1
                json.dumps(fitted(item.raw)[0], allow_nan=False)
                try:
                    (check_result if is_run else check_battle)(item, place=place)
                except InvalidInput as error:
                    assert error.field.endswith(".problem"), error
            json.dumps(fitted(imported.raw if is_run else {})[0], allow_nan=False)
            assert all(note.text for note in imported.notes)
    except Unreadable as error:
        assert error.reason
    assert {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()} == before
    return num_items


def read_bytes(importer, name: str, content: bytes) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        return read_all(importer, path)


@pytest.mark.parametrize("sample", SAMPLES)
@FUZZ
@given(how=damages)
def test_a_damaged_real_file(samples, sample, how):
    read_bytes(SAMPLES[sample], Path(sample).name, damaged(samples(sample).read_bytes()[:40_000], how))


@pytest.mark.parametrize("sample", [name for name in SAMPLES if name.endswith(".json")])
@FUZZ
@given(data=st.data())
def test_a_real_document_with_other_values_in_it(samples, sample, data):
    document = json.loads(samples(sample).read_text())
    if isinstance(document, dict) and len(document.get("results", ())) > 5:
        document["results"] = document["results"][:3]
    for _ in range(data.draw(st.integers(1, 3))):
        document = replaced(document, data.draw(st.sampled_from(places(document) or [()])), data.draw(values))
    read_bytes(SAMPLES[sample], Path(sample).name, json.dumps(document).encode())


@pytest.mark.parametrize("sample", [name for name in SAMPLES if name.endswith(".jsonl")])
@FUZZ
@given(data=st.data())
def test_real_lines_with_other_values_in_them(samples, sample, data):
    rows = [json.loads(line) for line in samples(sample).read_text().splitlines()]
    for _ in range(data.draw(st.integers(1, 3))):
        rows = replaced(rows, data.draw(st.sampled_from(places(rows))), data.draw(values))
        rows = rows if isinstance(rows, list) else [rows]
    read_bytes(SAMPLES[sample], Path(sample).name, "\n".join(map(json.dumps, rows)).encode())


@pytest.mark.parametrize("name", SMALL)
@FUZZ
@given(data=st.data())
def test_a_small_record_with_other_values_in_it(name, data):
    importer, document = SMALL[name]
    for _ in range(data.draw(st.integers(1, 3))):
        document = replaced(document, data.draw(st.sampled_from(places(document) or [()])), data.draw(values))
    read_bytes(importer, "result.json", json.dumps(document).encode())


@pytest.mark.parametrize(
    "importer", [*dict.fromkeys(SAMPLES.values()), arena, generic, helm], ids=lambda each: each.FORMAT
)
@FUZZ
@given(document=values)
def test_any_json(importer, document):
    read_bytes(importer, "results.json", json.dumps(document).encode())


@pytest.mark.parametrize("file", ["run_spec.json", "per_instance_stats.json", "scenario_state.json", "stats.json"])
@FUZZ
@given(data=st.data(), how=st.none() | damages)
def test_a_helm_folder_with_a_damaged_file(samples, file, data, how):
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "run"
        shutil.copytree(samples("helm/mmlu-subject_philosophy"), folder)
        folder.chmod(0o755)
        path = folder / file
        path.chmod(0o644)
        document = json.loads(path.read_text())
        if isinstance(document, list):
            document = document[:2]
        if how is None:
            document = replaced(document, data.draw(st.sampled_from(places(document))), data.draw(values))
        content = json.dumps(document).encode()
        path.write_bytes(content if how is None else damaged(content, how))
        read_all(helm, folder)


def test_the_fuzz_reads_whole_files_too(samples):
    assert all(
        read_bytes(importer, Path(sample).name, samples(sample).read_bytes())
        for sample, importer in SAMPLES.items()
        if not sample.endswith(".csv")
    )


@pytest.mark.parametrize("sample", [name for name in SAMPLES if name.endswith(".json")])
def test_a_value_nested_too_deep_in_any_place(samples, sample):
    document = json.loads(samples(sample).read_text())
    ways = places(document)
    for way in ways[:: max(1, len(ways) // 40)]:
        content = json.dumps(replaced(document, way, "DEEP")).encode()
        for depth in (400, 900):
            read_bytes(SAMPLES[sample], Path(sample).name, content.replace(b'"DEEP"', b"[" * depth + b"]" * depth))


@pytest.mark.parametrize("name", SMALL)
def test_a_value_nested_too_deep_in_a_small_record(name):
    importer, document = SMALL[name]
    for way in places(document):
        content = json.dumps(replaced(document, way, "DEEP")).encode()
        for depth in (400, 900):
            read_bytes(importer, "result.json", content.replace(b'"DEEP"', b"[" * depth + b"]" * depth))


@pytest.mark.parametrize("importer", [*dict.fromkeys(SAMPLES.values()), arena, generic], ids=lambda each: each.FORMAT)
def test_hostile_json_is_refused_or_empty(importer):
    deep = b"[" * 200_000
    huge = b'[{"question_id": 1' + b"0" * 5000 + b', "instance_id": 1, "model_patch": "", "score": 1}]'
    for content in (deep, huge, b'{"a":' * 100_000, b"\xff\xfe{}", b""):
        read_bytes(importer, "results.json", content)
