"""Benchmark runs in Chromium: both themes, a phone's width, axe, and a file that is sent and found again."""

import pytest

from evals.models import EvalRun, Problem
from evals.services.importing import import_path
from jobs import services as jobs
from jobs.models import Job
from registry.tenancy import tenant
from tests.browser.looks import faults_of
from tests.console import evaluate

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

LOG = "gen_v0.3.285_epochs2_nan.json"


@pytest.fixture
def paths(project, samples):
    brought_in = import_path(project.id, samples("inspect") / LOG).imported[0].id
    with tenant(project.id):
        gate = evaluate.make_benchmark()
        run = evaluate.make_run(gate, "editor@1", solves=0.45)
        evaluate.make_run(gate, "gpt-5", solves=0.5)
        evaluate.make_run(gate, "editor@2", solves=0.95)
        problem = Problem.objects.filter(benchmark=gate).first()
    return {
        "evals": "/p/editor/evals",
        "eval-run": f"/p/editor/evals/{run.pk}",
        "eval-run-imported": f"/p/editor/evals/{brought_in}",
        "leaderboard": f"/p/editor/evals/benchmarks/{gate.pk}",
        "eval-problem": f"/p/editor/evals/problems/{problem.pk}",
    }


def test_every_page_is_clean_in_each_theme_and_on_a_phone(visit, owner, paths):
    assert faults_of(visit, "owner", paths) == {}


def test_a_file_is_sent_from_the_empty_page_and_its_run_opened(visit, engineer, project, samples):
    assert faults_of(visit, "engineer", {"evals-empty": "/p/editor/evals"}, looks=["light"]) == {}
    visitor = visit("engineer")
    visitor.open("/p/editor/evals")
    visitor.page.set_input_files("#upload-files", samples("inspect") / LOG)
    visitor.page.click("form[data-upload] button")
    visitor.page.wait_for_selector("#upload-outcome table")
    visitor.shoot("evals-uploaded")
    visitor.page.click("#upload-outcome tbody a")
    visitor.page.wait_for_selector("#claims")
    with tenant(project.id):
        assert visitor.page.url.endswith(str(EvalRun.objects.get().pk))
    assert visitor.complaints == []


def test_a_file_that_cannot_be_read_is_refused_in_place(visit, engineer, project, tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    visitor = visit("engineer")
    visitor.open("/p/editor/evals")
    visitor.page.set_input_files("#upload-files", tmp_path / "notes.txt")
    visitor.page.click("form[data-upload] button")
    said = visitor.page.wait_for_selector("#upload-outcome [role=alert]").text_content()
    assert "notes.txt" in said and "no format is recognised" in said


def test_a_larger_file_waits_for_a_worker_and_the_page_says_when_it_is_read(visit, engineer, project, tmp_path):
    rows = "".join(f"p{i},m,{i % 2},{'x' * 30_000}\n" for i in range(100))
    (tmp_path / "large.csv").write_text("problem,model,score,output\n" + rows)
    visitor = visit("engineer")
    visitor.open("/p/editor/evals")
    visitor.page.set_input_files("#upload-files", tmp_path / "large.csv")
    visitor.page.click("form[data-upload] button")
    visitor.page.wait_for_selector("#upload-outcome .state-queued")
    jobs.run(jobs.claim(Job.objects.get(kind="evals.import-upload").pk, "test"))
    assert "100" in visitor.page.wait_for_selector("#upload-outcome tbody").text_content()
    assert visitor.complaints == []
