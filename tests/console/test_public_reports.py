"""Public bug reports about logs, on the page of the run that they came in with."""

import json

import pytest
from django.urls import reverse

from evals.exporters.registry import exporter_named
from evals.services.exporting import exported
from evals.services.importing import import_path
from tests.console.test_evaluate import words

SPEC = {"task": "t", "run_id": "r", "eval_id": "e", "model": "m", "created": "2026-01-02T03:04:05+00:00"}


@pytest.fixture
def shown(as_owner, project, tmp_path):
    """shown(sample, ...) -> (run's id, address -> the words of its page)."""

    def make(*samples, **fields):
        path = tmp_path / "log.json"
        path.write_text(json.dumps({"version": 2, "status": "success", "eval": SPEC, "samples": samples} | fields))
        (imported,) = import_path(project.id, path).imported
        here = reverse("console:eval-run", args=["editor", imported.id])
        return imported.id, lambda query="": words(as_owner.get(here + query).content.decode())

    return make


def sample(id, value, **fields):
    return {"id": id, "epoch": 1, "input": "q", "target": "t", "scores": {"match": {"value": value}}} | fields


def test_row_1_nan_in_a_score_of_several_keys_is_shown_as_unscored_and_leaves_as_null(shown, project):
    nan = float("nan")
    run, page = shown(sample("a", {"one": nan, "two": nan}), sample("b", {"one": 1.0, "two": 0.0}))
    html = page("?scorer=match/one")
    assert "match/one" in html and "match/two" in html and "1 of 2" in html
    assert "odd the log has 2 × NaN; they count as no value" in html and "unscored" in html
    for name, chunks in exporter_named("inspect").files(exported(project, str(run))):
        text = b"".join(chunks).decode()
        if name.endswith(".json"):
            json.loads(text, parse_constant=pytest.fail)


def test_row_6_a_category_and_nulls_in_metadata_are_shown_and_break_nothing(shown):
    _, page = shown(sample("a", "D", metadata={"k": [None, None], "n": None}), sample("b", "C"))
    html = page()
    assert "a unscored D unscored" in html, "the category is shown, and in no mean"
    assert "b 1 C scored" in html and "1 of 2" in html


def test_row_27_one_sample_has_no_standard_error_and_a_wide_interval(shown):
    _, page = shown(sample("a", "C"))
    html = page()
    assert "20.7 % to 100.0 %, 95 % wilson" in html
    assert "match 100.0 % unknown 1" in html, "no standard error of one, and not 0"
