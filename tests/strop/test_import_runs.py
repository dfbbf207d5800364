"""`strop import runs` and `strop report run`, as scripts call them."""

import json

import pytest
from click.testing import CliRunner

from evals.models import EvalRun
from registry.tenancy import tenant
from strop import cli

pytestmark = pytest.mark.django_db


def strop(*arguments: str):
    return CliRunner().invoke(cli.group, arguments, prog_name="strop")


@pytest.fixture
def log(samples):
    return str(samples("inspect") / "log_formats.eval")


def test_a_log_is_imported_and_again_changes_nothing(project, log):
    first, again = (json.loads(strop("import", "runs", log, "--json").stdout) for _ in range(2))
    assert [(one["outcome"], one["num_new"], one["num_known"]) for one in first["imported"]] == [("imported", 1, 0)]
    assert [(one["outcome"], one["num_new"], one["num_known"]) for one in again["imported"]] == [("unchanged", 0, 1)]
    with tenant(project.id):
        assert EvalRun.objects.count() == 1


def test_a_person_sees_a_table_and_what_was_left_out(project, log, samples, tmp_path):
    (tmp_path / "good.json").write_bytes((samples("inspect") / "log_formats.json").read_bytes())
    (tmp_path / "bad.eval").write_bytes(b"PK not a zip")
    (tmp_path / "readme.txt").write_text("hello")
    shown = strop("import", "runs", str(tmp_path))
    assert shown.exit_code == 1
    assert "inspect:popularity@1" in shown.stdout and "imported" in shown.stdout
    assert "not imported" in shown.stderr and "bad.eval" in shown.stderr
    assert "of no known format" in shown.stderr and "readme.txt" in shown.stderr


def test_wrong_use_is_told_with_status_2(project, log, tmp_path):
    assert strop("import", "runs", str(tmp_path / "nothing")).exit_code == 2
    (tmp_path / "readme.txt").write_text("hello")
    unknown = strop("import", "runs", str(tmp_path / "readme.txt"))
    assert (unknown.exit_code, "no format is recognised" in unknown.stderr) == (2, True)
    named = strop("import", "runs", log, "--format", "nonsense")
    assert (named.exit_code, "there is no format 'nonsense'" in named.stderr) == (2, True)


def test_a_run_is_printed_and_written_for_another_tool(project, log, tmp_path):
    run = json.loads(strop("import", "runs", log, "--json").stdout)["imported"][0]["id"]
    printed = json.loads(strop("report", "run", run, "--as", "inspect", "--json").stdout)
    assert (printed["eval"]["task"], len(printed["samples"])) == ("popularity", 1)
    written = json.loads(strop("report", "run", run, "--out", str(tmp_path / "out"), "--json").stdout)["files"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        path.rpartition("/")[2] for path in written
    )
    assert strop("report", "run", "nonsense").exit_code == 1


def test_a_table_is_read_by_a_mapping(project, samples, tmp_path):
    """Real votes of a crowd: 8,931 of 124 workers on 59 models."""
    mapping = tmp_path / "votes.json"
    columns = {"kind": "battles", "benchmark": "llmfao", "problem": "prompt", "rater": "worker", "by": "person"}
    mapping.write_text(json.dumps(columns))
    table = str(samples("pairwise_llmfao") / "llmfao.csv")
    (found,) = json.loads(strop("import", "runs", table, "--mapping", str(mapping), "--json").stdout)["imported"]
    assert (found["kind"], found["benchmark"], found["num_new"]) == ("comparisons", "generic:llmfao@1", 8931)
    mapping.write_text("{")
    assert strop("import", "runs", table, "--mapping", str(mapping)).exit_code == 2
