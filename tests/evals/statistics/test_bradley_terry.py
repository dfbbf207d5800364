import csv
import math

import choix
import evalica
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

from evals.statistics import bradley_terry
from evals.statistics.battles import battles, from_winners
from evals.statistics.bradley_terry import Game, bootstrap_errors, rank, rank_battles
from evals.statistics.estimate import Kind


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


@pytest.fixture(scope="module")
def votes(samples):
    with (samples("pairwise_llmfao") / "llmfao.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def expected(samples):
    with (samples("pairwise_llmfao") / "expected_bt.csv").open() as file:
        return {row[""]: row for row in csv.DictReader(file)}


def columns(votes, by=None):
    sides = [row["left"] for row in votes], [row["right"] for row in votes]
    return from_winners(*sides, [row["winner"] for row in votes], cluster=[row[by] for row in votes] if by else None)


@pytest.mark.parametrize(
    ("by", "errors", "column"),
    [
        (None, Kind.HESSIAN, "se_model"),
        (None, Kind.SANDWICH, "se_sand"),
        ("prompt", Kind.SANDWICH, "se_prompt"),
        ("worker", Kind.SANDWICH, "se_worker"),
    ],
)
def test_columns_of_votes_give_all_four_kinds_of_error(votes, expected, by, errors, column):
    ranking = rank_battles(columns(votes, by), errors=errors, small_sample=False)
    assert ranking.interval == errors
    assert max(abs(row.se - float(expected[row.name][column])) for row in ranking.rows) < 1e-6


def test_gpt_4s_error_by_prompt_is_a_third_larger_than_by_vote(votes):
    # .1931 / .1604 / .2089 / .2023
    kinds = [(None, Kind.HESSIAN), *((by, Kind.SANDWICH) for by in (None, "prompt", "worker"))]
    found = [
        by_name(rank_battles(columns(votes, by), errors=errors, small_sample=False))["GPT 4"].se for by, errors in kinds
    ]
    assert found == pytest.approx([0.1931, 0.1604, 0.2089, 0.2023], abs=5e-5)


def test_elo_scale_and_order_of_the_votes(votes, expected):
    rows = rank_battles(columns(votes)).rows
    assert (rows[0].name, rows[-1].name) == ("GPT 4", "Dolly v2 (3B)")
    assert [round(row.strength, 4) for row in (rows[0], rows[1], rows[-1])] == [0.9909, 0.6473, -0.8885]
    assert max(abs(row.elo - float(expected[row.name]["elo_scale"])) for row in rows) < 1e-3


def test_bootstrap_errors_are_those_of_the_reference_up_to_luck(votes, expected):
    # both are standard deviations over 200 resamples, each known to 5 %: all 59 within 25 %, their mean within 5 %
    played = columns(votes)
    found = bootstrap_errors(played, resamples=200, seed=1)
    ratio = found / np.array([float(expected[name]["se_boot"]) for name in played.names])
    assert 0.95 < ratio.mean() < 1.05 and ratio.min() > 0.75 and ratio.max() < 1.25


def test_strengths_equal_evalica_and_choix(votes):
    played = columns(votes)
    winner = {"left": evalica.Winner.X, "right": evalica.Winner.Y, "tie": evalica.Winner.Draw}
    oracle = evalica.bradley_terry(
        [row["left"] for row in votes], [row["right"] for row in votes], [winner[row["winner"]] for row in votes],
        tolerance=1e-10, limit=10_000,
    )  # fmt: skip
    ours = pd.Series({row.name: row.strength for row in rank_battles(played).rows})
    theirs = np.log(oracle.scores)
    assert (ours - (theirs - theirs.mean())).abs().max() < 1e-6
    decided = [row for row in votes if row["winner"] != "tie"]
    place = {name: index for index, name in enumerate(played.names)}
    sides = [(place[row["left"]], place[row["right"]], row["winner"]) for row in decided]
    pairs = [(left, right) if winner == "left" else (right, left) for left, right, winner in sides]
    without_ties = pd.Series({row.name: row.strength for row in rank_battles(columns(decided)).rows})
    theirs = choix.opt_pairwise(len(place), pairs, method="Newton-CG", tol=1e-10)
    assert np.abs(without_ties[list(played.names)].to_numpy() - (theirs - theirs.mean())).max() < 1e-4


def test_row_21_a_separable_winner_does_not_depend_on_the_stopping_rule():
    # A beats B 10-0, B-C 5-5: no finite strength; with a ridge, the reference values
    played = games(("A", "B", 10, 10), ("B", "C", 10, 5))
    assert rank(played).rows == () and "never lost" in rank(played).undefined
    rows = by_name(rank(played, ridge=0.5))
    assert [rows[name].elo - 1000 for name in "ABC"] == pytest.approx([275.6, -150.3, -125.2], abs=0.05)


def test_the_worked_examples_elo_scale():
    found = by_name(rank(games(("A", "B", 5, 2), ("A", "D", 5, 1), ("B", "C", 8, 5), ("C", "D", 4, 1))))
    assert [round(found[name].elo, 2) for name in "ABCD"] == [922.43, 1007.37, 927.77, 1142.44]


def test_a_rating_is_an_estimate_with_its_games_and_clusters():
    tied = rank([Game(left="A", right="B", result=index % 3 / 2, cluster=index % 4) for index in range(12)])
    found = tied.estimate("A")
    assert (found.n, found.num_clusters, found.interval) == (12, 4, Kind.NONE)
    told = rank(games(("A", "B", 9, 5))).estimate("A")
    assert told.interval == Kind.SANDWICH and told.low < told.value < told.high


def test_a_rating_that_is_undefined_says_why():
    ranking = rank(games(("A", "B", 3, 3)))
    assert ranking.estimate("A").undefined == "A never lost, not even half"
    assert rank(games(("A", "B", 4, 2))).estimate("Z").undefined == "Z met nobody"


def test_a_resample_without_finite_strengths_leaves_the_bootstrap_undefined():
    few = from_winners(["A", "A", "A"], ["B", "B", "B"], ["left", "left", "right"])
    assert bootstrap_errors(few, resamples=50) is None
    assert bootstrap_errors(few, resamples=50, ridge=0.5).shape == (2,)


def test_only_two_kinds_of_errors_can_be_asked_for():
    with pytest.raises(ValueError, match="errors are sandwich or hessian"):
        rank_battles(from_winners(["A"], ["B"], ["tie"]), errors=Kind.T)


def test_a_hundred_thousand_battles_of_known_strengths_are_found_again():
    rng = np.random.default_rng(10)
    true = rng.normal(size=30)
    true -= true.mean()
    left, right = rng.integers(0, 30, 100_000), rng.integers(0, 29, 100_000)
    right += right >= left
    won = rng.random(100_000) < 1 / (1 + np.exp(true[right] - true[left]))
    names = [f"{index:02}" for index in range(30)]
    found = by_name(rank_battles(battles([names[one] for one in left], [names[one] for one in right], won)))
    z = [(found[name].strength - true[index]) / found[name].se for index, name in enumerate(names)]
    assert max(map(abs, z)) < 4 and 0.6 < np.std(z) < 1.4


def test_a_table_of_clusters_too_large_to_fill_gives_the_same_errors(votes, monkeypatch):
    filled = rank_battles(columns(votes, "worker"))
    monkeypatch.setattr(bradley_terry, "MOST_DENSE", 0)
    sparse = rank_battles(columns(votes, "worker"))
    assert [row.se for row in sparse.rows] == pytest.approx([row.se for row in filled.rows], rel=1e-9)
