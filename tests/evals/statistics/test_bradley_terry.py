import csv
import math

import numpy as np
import pytest
import statsmodels.api as sm

from evals.statistics.bradley_terry import Game, rank


def games(*results):
    """("A", "B", 10, 3): ten games, of which A won three."""
    return [
        Game(left=left, right=right, result=float(index < wins))
        for left, right, n, wins in results
        for index in range(n)
    ]


def by_name(ranking):
    return {row.name: row for row in ranking.rows}


def test_two_sides_have_the_log_odds_of_their_score():
    # A won 3 of 4: log odds log(3), shared out evenly; Elo 1000 +- 173.7178 * .549306
    rows = by_name(rank(games(("A", "B", 4, 3))))
    assert rows["A"].strength == pytest.approx(math.log(3) / 2)
    assert rows["A"].elo == pytest.approx(1095.4243, abs=1e-3) and rows["B"].elo == pytest.approx(904.5757, abs=1e-3)


def test_a_tie_is_half_a_win():
    tied = [Game(left="A", right="B", result=result) for result in (1, 0.5, 0.5, 0.5)]
    assert by_name(rank(tied))["A"].strength == pytest.approx(math.log(2.5 / 1.5) / 2)


def test_the_published_worked_example_comes_out():
    # 22 games of four sides; strengths with geometric mean 1: A .640, B 1.043, C .660, D 2.270
    found = by_name(
        rank(
            games(
                ("A", "B", 5, 2), ("A", "D", 5, 1), ("B", "C", 8, 5), ("C", "D", 4, 1)
            )
        )
    )  # fmt: skip
    assert {name: round(math.exp(row.strength), 3) for name, row in found.items()} == {
        "A": 0.640, "B": 1.043, "C": 0.660, "D": 2.270,
    }  # fmt: skip


def test_who_never_lost_leaves_the_ranking_undefined():
    ranking = rank(games(("A", "B", 10, 10), ("B", "C", 10, 5)))
    assert (ranking.rows, ranking.undefined) == ((), "A never lost, not even half")


def test_who_never_won_leaves_it_undefined_too():
    assert rank(games(("A", "B", 4, 2), ("B", "C", 3, 3), ("A", "C", 1, 1))).undefined == "C never won, not even half"


def test_two_groups_split_one_way_have_no_common_scale():
    split = rank(games(("A", "B", 4, 2), ("C", "D", 4, 2), ("A", "C", 3, 3)))
    assert split.undefined == "all results between A, B and the others went one way"


def test_sides_that_never_met_have_no_common_scale():
    assert rank(games(("A", "B", 4, 2), ("C", "D", 4, 2))).undefined == "no result ties C, D to A"


def test_nothing_compared_is_no_ranking():
    assert rank([]).undefined == "no decided comparison yet"


def test_a_ridge_gives_the_separable_case_a_finite_answer():
    # the reference values of a ridge of .5, whatever the solver's stopping rule
    rows = by_name(rank(games(("A", "B", 10, 10), ("B", "C", 10, 5)), ridge=0.5))
    assert [round(rows[name].elo - 1000, 1) for name in "ABC"] == [275.6, -150.3, -125.2]


@pytest.mark.parametrize("clusters", [None, 7])
def test_strengths_and_errors_equal_statsmodels_logit(clusters):
    rng = np.random.default_rng(3)
    played = [
        Game(
            left=left, right=right, result=float(rng.random() < 1 / (1 + math.exp(gap))),
            cluster=None if clusters is None else int(rng.integers(clusters)),
        )
        for left, right, gap in (("A", "B", -0.6), ("B", "C", 0.2), ("A", "C", -0.4))
        for _ in range(40)
    ]  # fmt: skip
    place = {"A": 0, "B": 1, "C": 2}
    design = np.zeros((len(played), 3))
    for row, game in enumerate(played):
        design[row, place[game.left]], design[row, place[game.right]] = 1, -1
    labels = [index if game.cluster is None else game.cluster for index, game in enumerate(played)]
    fitted = sm.Logit([game.result for game in played], design[:, :2]).fit(
        disp=0, cov_type="cluster", cov_kwds={"groups": labels, "use_correction": False}
    )
    centre = np.eye(3)[:, :2] - np.ones((3, 2)) / 3  # C is 0 there; here the mean is
    errors = np.sqrt(np.diag(centre @ fitted.cov_params() @ centre.T))
    rows = by_name(rank(played, small_sample=False))
    assert [rows[name].strength for name in "ABC"] == pytest.approx(list(centre @ fitted.params), abs=1e-6)
    assert [rows[name].se for name in "ABC"] == pytest.approx(list(errors), abs=1e-6)


def test_one_cluster_says_nothing_about_the_error():
    ranking = rank([Game(left="A", right="B", result=result, cluster="x") for result in (1, 1, 0)])
    assert (ranking.rows[0].se, ranking.rows[0].elo_low, ranking.num_clusters) == (None, None, 1)


@pytest.mark.parametrize(
    "results",
    [
        [(0.5, "p"), (0.5, "q"), (0.5, "r")],  # all ties
        [(1, "p"), (0, "p"), (1, "q"), (0, "q")],  # every prompt split evenly
        [(1, "p"), (1, "p"), (0, "p"), (1, "q"), (1, "q"), (0, "q")],  # the same, away from the middle
    ],
)
def test_clusters_that_cancel_out_are_too_few_to_say_and_no_interval_without_width(results):
    ranking = rank([Game(left="A", right="B", result=result, cluster=cluster) for result, cluster in results])
    assert [(row.se, row.elo_low, row.elo_high) for row in ranking.rows] == [(None, None, None)] * 2


def test_errors_are_widened_for_the_few_clusters_they_come_from():
    # two prompts: A wins 2 of 3 on p and 1 of 3 on q, so each is half a win from the middle and the errors grow by 2/1
    told = [(1, "p"), (1, "p"), (0, "p"), (1, "q"), (0, "q"), (0, "q")]
    played = [Game(left="A", right="B", result=result, cluster=cluster) for result, cluster in told]
    wide, narrow = (by_name(rank(played, small_sample=one))["A"] for one in (True, False))
    # log odds of A over B: sandwich sqrt(2 * .5^2) / (6 / 4), and half of it for A around the middle
    assert narrow.se == pytest.approx(math.sqrt(0.5) / 1.5 / 2)
    assert wide.se == pytest.approx(narrow.se * math.sqrt(2))


@pytest.mark.parametrize(("by", "column"), [(None, "se_sand"), ("prompt", "se_prompt"), ("worker", "se_worker")])
def test_nine_thousand_human_votes_give_the_reference_strengths_and_errors(samples, by, column):
    folder = samples("pairwise_llmfao")
    points = {"left": 1.0, "right": 0.0, "tie": 0.5}
    with (folder / "llmfao.csv").open() as votes:
        played = [
            Game(left=row["left"], right=row["right"], result=points[row["winner"]], cluster=row[by] if by else None)
            for row in csv.DictReader(votes)
        ]
    with (folder / "expected_bt.csv").open() as reference:
        expected = {row[""]: row for row in csv.DictReader(reference)}
    rows = rank(played, small_sample=False).rows
    assert len(rows) == len(expected) == 59
    assert max(abs(row.strength - float(expected[row.name]["bt"])) for row in rows) < 1e-6
    assert max(abs(row.se - float(expected[row.name][column])) for row in rows) < 1e-6
