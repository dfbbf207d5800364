import pytest

from evals.statistics.battles import battles, from_winners


def test_columns_are_numbered_by_sorted_names():
    found = battles(["b", "a"], ["a", "c"], [1, 0.5])
    assert (found.names, found.left.tolist(), found.right.tolist()) == (("a", "b", "c"), [1, 0], [0, 2])
    assert (len(found), found.cluster, found.num_clusters) == (2, None, 2)


def test_a_cluster_of_none_stands_for_itself():
    found = battles(["a"] * 4, ["b"] * 4, [1, 0, 1, 0], cluster=[None, 0, None, 0])
    first, zero, third, again = found.cluster.tolist()
    assert zero == again and sorted({first, zero, third}) == [0, 1, 2]
    assert found.num_clusters == 3


def test_winners_are_read_as_public_files_write_them():
    words = ["model_a", "right", "tie (bothbad)", "draw"]
    assert from_winners(["a"] * 4, ["b"] * 4, words).result.tolist() == [1.0, 0.0, 0.5, 0.5]


def test_row_22_an_unknown_winner_is_an_error_and_not_a_tie():
    with pytest.raises(ValueError, match="battle 1 was won by 'model a'; known are"):
        from_winners(["a", "a"], ["b", "b"], ["model_a", "model a"])


@pytest.mark.parametrize(
    ("left", "right", "result", "cluster", "why"),
    [
        (["a"], ["b", "c"], [1], None, "1 left, 2 right, 1 results"),
        (["a", "a"], ["b", "b"], [1, 1.5], None, r"result 1 is 1\.5"),
        (["a", "a"], ["b", "b"], [float("nan"), 1], None, "result 0 is nan"),
        (["a", "b"], ["b", "b"], [1, 1], None, "battle 1 sets b against itself"),
        (["a"], ["b"], [1], [1, 2], "1 battles came with 2 clusters"),
    ],
)
def test_columns_that_do_not_fit_are_refused(left, right, result, cluster, why):
    with pytest.raises(ValueError, match=why):
        battles(left, right, result, cluster=cluster)
