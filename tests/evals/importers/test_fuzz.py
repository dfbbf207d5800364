"""Whatever is in a file, the importers of the harness and of Inspect say Unreadable or read it, and write nothing."""

import io
import json
import tempfile
import warnings
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from evals.importers import inspect_log, lm_eval
from evals.importers.errors import Unreadable
from evals.services.imported_checks import check_result
from evals.services.raw_records import fitted
from registry.errors import InvalidInput
from tests.evals.importers.damage import damaged

EXAMPLES = 150
FUZZ = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
SAMPLES = "samples_t_2026-01-01T00-00-00.jsonl"

numbers = st.integers(-3, 3) | st.integers(-(2**70), 2**70) | st.floats() | st.just(1e308)
texts = st.text(max_size=8) | st.sampled_from(
    ["a", "C", "N/A", "NaN", "\0", "\ud800", "mean", "acc,none", "acc_stderr,none", "match", "2026-01-01", "x" * 300]
)
leaves = st.none() | st.booleans() | numbers | texts
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)


def objects(*names: str) -> st.SearchStrategy[dict]:
    """Objects with some of the fields that the importer looks at, of any kind."""
    return st.fixed_dictionaries({}, optional={name: values for name in names})


scores = st.dictionaries(texts, objects("value", "answer", "explanation") | values, max_size=3)
usages = objects("input_tokens", "total_tokens", "total_cost")
inspect_samples = st.fixed_dictionaries(
    {"id": values},
    optional={
        "epoch": values, "input": values, "target": values, "scores": scores | values, "score": values,
        "output": objects("choices", "usage", "completion") | values, "metadata": values, "limit": values,
        "model_usage": st.dictionaries(texts, usages, max_size=2) | values,
        "working_time": values, "error": objects("message") | values, "attachments": values, "events": values,
    },
)  # fmt: skip
specs = st.fixed_dictionaries(
    {"task": st.just("t")},
    optional={
        "task_version": values, "run_id": values, "eval_id": values, "created": values, "model": values,
        "dataset": objects("samples", "sample_ids") | values, "config": values, "packages": values, "scorers": values,
    },
)  # fmt: skip
score_rows = objects("name", "scorer", "reducer", "scored_samples", "metrics")
results = st.fixed_dictionaries(
    {}, optional={"scores": st.lists(score_rows | values, max_size=3), "total_samples": values}
)
headers = st.fixed_dictionaries(
    {"eval": specs | values},
    optional={
        "status": values, "version": values, "plan": values, "error": values, "invalidated": values,
        "stats": objects("started_at") | values,
        "results": results,
    },
)  # fmt: skip
rows = st.dictionaries(
    st.sampled_from(["acc,none", "acc_stderr,none", "acc", "alias", "sample_len", "ppl,x", "n", ""]), values, max_size=4
)
DOCUMENT = (
    "configs", "config", "versions", "n-samples", "n-shot", "group_subtasks", "higher_is_better", "date", "model_name",
    "lm_eval_version",
)  # fmt: skip
harness = st.fixed_dictionaries(
    {"results": st.dictionaries(st.sampled_from(["t", "g", ""]), rows | values, max_size=3) | values},
    optional={
        name: values | st.dictionaries(st.sampled_from(["t", "g"]), values, max_size=2)
        for name in DOCUMENT
    },
)  # fmt: skip
harness_samples = st.fixed_dictionaries(
    {},
    optional={
        name: values
        for name in (
            "doc_id",
            "doc",
            "target",
            "arguments",
            "resps",
            "filtered_resps",
            "filter",
            "metrics",
            "acc",
            "f1",
        )
    },
)


def read_all(importer, files: dict[str, bytes], name: str) -> int:
    """How many results a file has, read as an import does: nothing but Unreadable comes out, nothing is written."""
    with tempfile.TemporaryDirectory() as folder:
        for each, content in files.items():
            (Path(folder) / each).write_bytes(content)
        importer.recognises(Path(folder) / name)
        num_results = 0
        try:
            for run in importer.read(Path(folder) / name):
                for place, result in enumerate(run.results):
                    num_results += 1
                    json.dumps(fitted(result.raw), allow_nan=False)
                    try:
                        check_result(result, place=place)
                    except InvalidInput as error:
                        assert error.field.endswith((".problem", ".scorer", ".repeat")), error
        except Unreadable as error:
            assert error.reason
        assert {path.name: path.read_bytes() for path in Path(folder).iterdir()} == files
    return num_results


def encoded(value) -> bytes:
    return json.dumps(value).encode()


@FUZZ
@given(header=headers, samples=st.lists(inspect_samples | values, max_size=3))
@example(header={"eval": {"task": "t"}}, samples=[{"id": "a", "scores": {"m": {"value": float("nan")}}}])
def test_any_json_log(header, samples):
    read_all(inspect_log, {"log.json": encoded(header | {"samples": samples})}, "log.json")


@FUZZ
@given(header=headers, samples=st.lists(inspect_samples | values, max_size=3), name=texts)
def test_any_archive(header, samples, name):
    data = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(data, "w") as file:
        warnings.filterwarnings("ignore", "Duplicate name")
        file.writestr("header.json", encoded(header))
        for number, sample in enumerate(samples):
            file.writestr(f"samples/{name.encode(errors='replace').decode()}{number}.json", encoded(sample))
    read_all(inspect_log, {"log.eval": data.getvalue()}, "log.eval")


@FUZZ
@given(results=harness, samples=st.lists(harness_samples | values, max_size=4))
def test_any_results_of_the_harness(results, samples):
    files = {
        "results_2026-01-01T00-00-00.json": encoded(results),
        SAMPLES: b"\n".join(map(encoded, samples)),
    }
    read_all(lm_eval, files, "results_2026-01-01T00-00-00.json")


@FUZZ
@given(samples=st.lists(harness_samples | values, max_size=4))
def test_any_samples_of_the_harness(samples):
    read_all(lm_eval, {SAMPLES: b"\n".join(map(encoded, samples))}, SAMPLES)


KINDS = ["cut", "flip", "double", "drop"]
places = st.floats(0, 1, exclude_max=True)
damages = st.lists(st.tuples(places, st.sampled_from(KINDS), st.integers(0, 255)), min_size=1, max_size=4)


@pytest.mark.parametrize(
    "name",
    [
        "log_formats.eval",
        "gen_v0.3.285_epochs2_nan_zstd.eval",
        "log_formats.json",
        "2025-05-12T20-28-13-04-00_no-samples.json",
    ],
)
@settings(FUZZ, max_examples=60)
@given(how=damages)
def test_a_damaged_real_log(samples, name, how):
    content = (samples("inspect") / name).read_bytes()
    read_all(inspect_log, {name: damaged(content, how)}, name)


@pytest.mark.parametrize("is_results", [True, False])
@settings(FUZZ, max_examples=60)
@given(how=damages)
def test_damaged_real_results(samples, is_results, how):
    stamp = "2026-11-30T05-50-03.292058"
    names = {True: f"results_{stamp}.json", False: f"samples_mini_gen_{stamp}.jsonl"}
    files = {each: (samples("lm_eval") / each).read_bytes() for each in names.values()}
    files[names[is_results]] = damaged(files[names[is_results]], how)
    read_all(lm_eval, files, names[True])


def test_the_fuzz_reads_whole_files_too(samples):
    content = (samples("inspect") / "log_formats.eval").read_bytes()
    assert read_all(inspect_log, {"log.eval": content}, "log.eval") == 1
