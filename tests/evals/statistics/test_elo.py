import csv

import pytest

from evals.statistics.battles import battles, from_winners
from evals.statistics.elo import drift, path, snapshots


def worked_example(reverse=False):
    """The 22 games of four sides (see test_bradley_terry), one after the other."""
    counts = [("A", "B", 2), ("B", "A", 3), ("A", "D", 1), ("D", "A", 4), ("B", "C", 5), ("C", "B", 3), ("C", "D", 1)]
    games = [(one, other) for one, other, n in [*counts, ("D", "C", 3)] for _ in range(n)]
    games = games[::-1] if reverse else games
    return battles([one for one, _ in games], [other for _, other in games], [1.0] * len(games))


def test_one_result_moves_both_sides_by_the_surprise():
    # equal ratings: expected .5, so 4 * .5 = 2 points; then expected 1 / (1 + 10^(-4/400)) = .50576
    found = drift(battles(["a", "a"], ["b", "b"], [1, 1]))
    assert found["a"] == pytest.approx(1002 + 4 * (1 - 0.505756), abs=1e-5)
    assert sum(found.values()) == pytest.approx(2000)


def test_the_order_of_results_changes_elo_which_is_why_it_does_not_rank():
    there, back = drift(worked_example())["A"], drift(worked_example(reverse=True))["A"]
    assert (round(there, 2), round(back, 2)) == (992.02, 992.79)


def test_ratings_equal_evalicas_golden_file(samples):
    folder = samples("pairwise_llmfao")
    with (folder / "llmfao.csv").open() as file:
        votes = list(csv.DictReader(file))
    with (folder / "llmfao-golden.csv").open() as file:
        golden = {row["item"]: float(row["score"]) for row in csv.DictReader(file) if row["algorithm"] == "elo"}
    played = from_winners(*([row[column] for row in votes] for column in ("left", "right", "winner")))
    found = drift(played)
    assert found.keys() == golden.keys()
    assert max(abs(found[name] - golden[name]) for name in golden) < 5e-7


def test_the_path_of_one_side_ends_at_its_rating():
    played = worked_example()
    steps = path(played, "C")
    assert (len(steps), steps[-1]) == (12, pytest.approx(drift(played)["C"]))
    assert path(played, "nobody") == []


def test_snapshots_are_the_ratings_on_the_way_and_end_where_drift_does():
    played = worked_example()
    found = snapshots(played, at_most=5)
    assert found.places == (5, 10, 15, 20, 22)
    assert {name: values[-1] for name, values in found.ratings.items()} == pytest.approx(drift(played))
    first_ten = battles(
        ["A"] * 2 + ["B"] * 3 + ["A"] + ["D"] * 4, ["B"] * 2 + ["A"] * 3 + ["D"] + ["A"] * 4, [1.0] * 10
    )
    assert found.ratings["A"][1] == pytest.approx(drift(first_ten)["A"])
    assert snapshots(battles([], [], [])).ratings == {}
