import math

import pytest

from evals.models import Comparison, JudgeVersion
from evals.standings import Vote, standings, votes_of_judge, votes_of_people
from registry.tenancy import tenant
from tests.evals.test_judge_record import EARLIER, LATER, make_judge, make_problem


def votes(left, right, wins, ties, losses, **more):
    results = [1.0] * wins + [0.5] * ties + [0.0] * losses
    return [Vote(left=left, right=right, result=result, **more) for result in results]


def test_a_cell_is_the_rows_rate_over_the_column_with_ties_as_halves():
    found = standings(votes("b", "a", 6, 3, 1))
    cell = found.cells["b", "a"]
    assert (cell.rate, cell.n, cell.ties) == (0.75, 10, 3)
    assert found.cells["a", "b"].rate == 0.25 and found.names == ("b", "a")


def test_both_sides_of_a_cell_mirror_each_other():
    found = standings(votes("b", "a", 6, 3, 1))
    there, back = found.cells["b", "a"], found.cells["a", "b"]
    assert (there.low, there.high) == pytest.approx((1 - back.high, 1 - back.low))


def test_which_side_was_left_does_not_matter():
    turned = standings([*votes("b", "a", 3, 0, 0), *votes("a", "b", 1, 0, 2)])
    assert (turned.cells["b", "a"].rate, turned.cells["b", "a"].n) == (pytest.approx(5 / 6), 6)


def test_undecided_votes_are_counted_and_are_no_ties():
    found = standings([*votes("b", "a", 1, 0, 1), Vote(left="a", right="b", result=None)])
    assert (found.num_votes, found.num_undecided, found.num_decided) == (3, 1, 2)
    assert found.cells["a", "b"].rate == 0.5 and found.cells["a", "b"].undecided == 1


def test_votes_on_one_problem_hang_together():
    alone, tied = standings(votes("b", "a", 4, 0, 4)), standings(votes("b", "a", 4, 0, 4, cluster="p0"))
    assert tied.cells["b", "a"].low < alone.cells["b", "a"].low


def test_the_ranking_is_bradley_terry_on_the_elo_scale():
    found = standings(votes("b", "a", 3, 0, 1))
    assert found.ranking.rows[0].name == "b"
    assert found.ranking.rows[0].elo == pytest.approx(1000 + 400 / math.log(10) * math.log(3) / 2)


def test_a_perfect_winner_leaves_the_ranking_undefined_and_the_ridge_says_so_much():
    found = standings(votes("b", "a", 4, 0, 0))
    assert found.ranking.undefined == "b never lost, not even half" and found.ranking.rows == ()
    assert [row.name for row in found.with_ridge.rows] == ["b", "a"]


def test_nothing_compared_has_no_names_and_no_ranking():
    found = standings([])
    assert (found.names, found.cells, found.ranking.undefined) == ((), {}, "no decided comparison yet")


def test_of_many_sides_those_with_most_votes_are_kept():
    many = [vote for i in range(5) for vote in votes(f"m{i}", "a", i + 1, 0, 1)]
    found = standings(many, max_names=3)
    assert set(found.names) == {"a", "m4", "m3"} and found.num_names_left_out == 3


@pytest.mark.django_db
def test_each_judge_version_and_people_are_kept_apart(project):
    with tenant(project.id):
        first, second, problem = make_judge("first"), make_judge("second"), make_problem()
        for by, judge, verdict in (("judge", first, "left"), ("judge", second, "right"), ("person", None, "tie")):
            Comparison.objects.create(problem=problem, left="b", right="a", by=by, judge=judge, verdict=verdict)
        assert [vote.result for vote in votes_of_judge(first, since=EARLIER, until=LATER)] == [1.0]
        assert [vote.result for vote in votes_of_judge(second, since=EARLIER, until=LATER)] == [0.0]
        (person,) = votes_of_people(since=EARLIER, until=LATER)
        assert (person.result, person.cluster) == (0.5, problem.pk)


@pytest.mark.django_db
def test_votes_of_another_project_are_not_seen(project, other_project):
    with tenant(project.id):
        judge = make_judge()
        Comparison.objects.create(left="b", right="a", by="person", verdict="left")
    with tenant(other_project.id):
        assert votes_of_people(since=EARLIER, until=LATER) == []
        assert votes_of_judge(JudgeVersion(pk=judge.pk), since=EARLIER, until=LATER) == []
