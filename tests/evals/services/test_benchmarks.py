import pytest
from django.db import DatabaseError

from evals.models import Benchmark, Problem
from evals.scorers.scorer import ProblemSpec
from evals.services.benchmarks import create_benchmark
from registry.errors import Conflict, InvalidInput
from registry.tenancy import tenant

ONE, TWO = ProblemSpec(id="1", prompt="x ="), ProblemSpec(id="2", messages=[{"role": "user", "content": "hello"}])


def test_a_benchmark_is_stored_with_its_problems(project):
    made = create_benchmark(project.id, "small", [ONE, TWO], description="two", is_held_out=False)
    with tenant(project.id):
        assert str(made) == "small@1"
        stored = made.problems.order_by("problem_id").values_list("problem_id", "prompt")
        assert list(stored) == [("1", "x ="), ("2", None)]


def test_making_it_twice_finds_it_again_whatever_the_order(project):
    first = create_benchmark(project.id, "small", [ONE, TWO])
    assert create_benchmark(project.id, "small", [TWO, ONE]) == first
    assert create_benchmark(project.id, "small", [TWO, ONE], version=1) == first


def test_other_problems_take_the_next_version(project):
    create_benchmark(project.id, "small", [ONE])
    assert create_benchmark(project.id, "small", [ONE, TWO]).version == 2


def test_other_problems_under_a_used_version_are_a_conflict(project):
    create_benchmark(project.id, "small", [ONE], version=1)
    with pytest.raises(Conflict, match="small@1 exists with other problems"):
        create_benchmark(project.id, "small", [TWO], version=1)


@pytest.mark.parametrize(
    ("name", "problems", "field"),
    [
        ("", [ONE], "name"),
        ("a/b", [ONE], "name"),
        ("small", [], "problems"),
        ("small", [ONE, ONE], "problems"),
        ("small", [ProblemSpec(id="x")], "problems"),
        ("small", [ProblemSpec(id="x" * 129, prompt="")], "problems"),
    ],
)
def test_what_is_wrong_names_the_field(project, name, problems, field):
    with pytest.raises(InvalidInput) as caught:
        create_benchmark(project.id, name, problems)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "change",
    [
        lambda benchmark: Problem.objects.filter(benchmark=benchmark).update(prompt="y ="),
        lambda benchmark: Problem.objects.create(benchmark=benchmark, problem_id="new", prompt=""),
        lambda benchmark: Benchmark.objects.filter(pk=benchmark.pk).update(is_held_out=False),
        lambda benchmark: Benchmark.objects.filter(pk=benchmark.pk).update(digest=""),
    ],
)
def test_the_database_refuses_to_change_a_complete_benchmark(project, change):
    made = create_benchmark(project.id, "small", [ONE])
    with pytest.raises(DatabaseError, match="immutable"), tenant(project.id):
        change(made)


def test_another_project_sees_nothing_of_it(project, other_project):
    create_benchmark(project.id, "small", [ONE])
    with tenant(other_project.id):
        assert not Benchmark.objects.exists()
    assert create_benchmark(other_project.id, "small", [TWO]).version == 1
