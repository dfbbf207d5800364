import pytest

from evals.models import Score, ScoreStatus
from evals.services.benchmarks import create_benchmark
from evals.services.turns import score_turn
from registry.errors import InvalidInput, NotFound
from registry.tenancy import tenant


@pytest.fixture
def live(project, benchmark):
    """live@1: the problems of adding@1, not held out."""
    from evals.selectors import spec_of

    with tenant(project.id):
        specs = [spec_of(problem) for problem in benchmark.problems.all()]
    return create_benchmark(project.id, "live", specs, is_held_out=False)


def by_scorer(rows):
    return {row.scorer: row.value for row in rows}


def test_a_live_turn_is_measured_by_the_tests_of_its_problem(project, live):
    assert by_scorer(score_turn(project.id, "t-1", "live@1/add/7", " a + 7")) == {"unit_tests": 1, "executability": 1}
    assert by_scorer(score_turn(project.id, "t-2", "live@1/add/7", " a")) == {"unit_tests": 0, "executability": 1}


def test_measuring_twice_keeps_the_first(project, live):
    first = score_turn(project.id, "t-1", "live@1/add/7", " a + 7")
    assert [row.pk for row in score_turn(project.id, "t-1", "live@1/add/7", " a")] == [row.pk for row in first]
    assert by_scorer(first) == by_scorer(score_turn(project.id, "t-1", "live@1/add/7", " a"))


def test_a_masked_score_is_measured_again(project, live):
    score_turn(project.id, "t-1", "live@1/add/7", " a + 7")
    with tenant(project.id):
        Score.objects.filter(scorer="unit_tests").update(status=ScoreStatus.INFRA, value=None)
    assert by_scorer(score_turn(project.id, "t-1", "live@1/add/7", " a + 7"))["unit_tests"] == 1.0


def test_a_held_out_problem_is_refused(project, benchmark):
    with pytest.raises(InvalidInput, match="held out"):
        score_turn(project.id, "t-1", "adding@1/add/7", " a + 7")


@pytest.mark.parametrize("link", ["adding", "adding@1", "adding@x/1", "@1/x", "adding@1/"])
def test_a_malformed_link_is_refused(project, link):
    with pytest.raises(InvalidInput, match="write <benchmark>@<version>"):
        score_turn(project.id, "t-1", link, "")


def test_an_unknown_problem_is_not_found(project, live):
    with pytest.raises(NotFound, match="no problem live@1/add/99"):
        score_turn(project.id, "t-1", "live@1/add/99", "")
