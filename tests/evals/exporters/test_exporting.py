"""Runs in other tools' formats: valid by their schema, and read back as they were."""

import json

import pytest

from evals import selectors_runs
from evals.exporters.registry import MODULES, exporter_named
from evals.importers import registry
from evals.models import EvalRun
from evals.services.exporting import exported
from evals.services.importing import import_path, import_run
from registry.errors import NotFound
from registry.tenancy import tenant
from tests.evals.exporters import schema_check
from tests.evals.services.test_importing import result, run

pytestmark = pytest.mark.django_db


@pytest.fixture
def runs(project, samples):
    """Every imported run of the samples by name, exported on demand: runs(format) -> [(run, {file name: bytes})]."""
    for folder in ("inspect", "lm_eval"):
        import_path(project.id, samples(folder))
    import_run(project.id, run(result(prompt=None, messages=[{"role": "user", "content": "q"}]), result("2", None)))

    def written(format: str):
        with tenant(project.id):
            ids = list(EvalRun.objects.order_by("id").values_list("id", flat=True))
        for run_id in ids:
            found = exported(project, str(run_id))
            files = exporter_named(format).files(found)
            yield found, {name: b"".join(chunks) for name, chunks in files}

    return written


def strict(data: bytes):
    def refuse(name: str):
        raise AssertionError(f"{name} is no JSON")

    return json.loads(data, parse_constant=refuse)


def test_every_run_is_valid_by_the_schemas_of_every_eval_ever(runs):
    aggregate, instance = schema_check.schema("eval"), schema_check.schema("instance_level_eval")
    num_instances = 0
    for _run, files in runs("every-eval-ever"):
        main, details = files.values()
        assert schema_check.faults(strict(main), aggregate) == []
        for row in details.split(b"\n"):
            if row:
                num_instances += 1
                assert schema_check.faults(strict(row), instance) == []
    assert num_instances == 70


def test_the_checker_of_schemas_finds_faults(runs):
    documents = (strict(next(iter(files.values()))) for _run, files in runs("every-eval-ever"))
    main = next(document for document in documents if document["evaluation_results"])
    aggregate = schema_check.schema("eval")
    assert schema_check.faults(main | {"colour": 1}, aggregate) == ["$: colour is not allowed"]
    assert schema_check.faults(main | {"model_info": {}}, aggregate)
    main["evaluation_results"][0]["metric_config"]["score_type"] = "levels"
    assert "level_names is missing" in schema_check.faults(main, aggregate)[0]


def test_an_unscored_answer_is_no_instance_and_is_counted_in_the_details(project):
    import_run(project.id, run(result(), result("2", None), result("3", 0.0)))
    with tenant(project.id):
        found = exported(project, str(EvalRun.objects.get().pk))
    main, details = (b"".join(chunks) for _, chunks in exporter_named("every-eval-ever").files(found))
    (score,) = strict(main)["evaluation_results"]
    assert score["score_details"]["score"] == 0.5
    assert score["score_details"]["details"]["unscored_answers"] == "1"
    assert len(details.splitlines()) == 2


@pytest.mark.parametrize("format", ["lm-eval", "inspect"])
def test_what_is_exported_is_imported_with_the_same_scores(runs, format, tmp_path):
    for place, (found, files) in enumerate(runs(format)):
        folder = tmp_path / str(place)
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        ((importer, path),) = registry.find(folder).readable
        (again,) = importer.read(path)
        only = format == "inspect"
        assert answers(again.results, scored_only=only) == answers(found.results, scored_only=only)
        assert again.model == found.model


def answers(results, *, scored_only=False) -> dict[tuple[str, str], list[float | None]]:
    """Scores by problem and scorer, in the order of repeats: the harness has no numbers for those.

    Inspect's format has no place for an unscored answer.
    """
    found = {}
    for one in sorted(results, key=lambda one: one.repeat):
        if one.score is not None or not scored_only:
            found.setdefault((one.problem, one.scorer.removesuffix(",none")), []).append(one.score)
    return found


def test_a_run_that_was_cancelled_or_failed_is_no_success_elsewhere(project):
    import_run(project.id, run(result()))
    for state, status in (("done", "success"), ("cancelled", "cancelled"), ("failed", "error"), ("running", "started")):
        with tenant(project.id):
            EvalRun.objects.update(state=state, error="no engine held it", asked_by="ada", seed=7, settings={})
            found = exported(project, str(EvalRun.objects.get().pk))
        main = strict(b"".join(next(exporter_named("inspect").files(found))[1]))
        assert (main["status"], main.get("error", {}).get("message")) == (
            status, "no engine held it" if state == "failed" else None,
        )  # fmt: skip
        assert main["eval"]["metadata"]["settings"]["seed"] == 7


def test_there_is_an_exporter_for_every_name():
    assert all(hasattr(exporter_named(name), "files") for name in MODULES)


@pytest.mark.parametrize("name", ["", "7", "0199f0c2-0000-7000-8000-000000000000"])
def test_an_id_that_is_no_runs_is_not_found(project, name):
    with pytest.raises(NotFound):
        exported(project, name)


def test_a_run_of_another_project_is_not_found(project, other_project):
    report = import_run(project.id, run(result()))
    with pytest.raises(NotFound):
        exported(other_project, str(report.id))


def test_a_result_page_leaves_raw_records_unread(project):
    import_run(project.id, run(*(result(str(number), raw={"n": number}) for number in range(5))))
    with tenant(project.id):
        row = EvalRun.objects.get()
        first = selectors_runs.results(row, size=2)
        second = selectors_runs.results(row, after=first[-1].pk, size=2)
        assert [score.problem.problem_id for score in (*first, *second)] == ["0", "1", "2", "3"]
        assert "raw" in first[0].get_deferred_fields()
        assert selectors_runs.find_result(row, first[1].pk).raw == {"n": 1}
