import pytest

from evals.statistics.estimate import Kind
from evals.statistics.vote_agreement import ItemVotes, judges_with_people, people_with_people, settled

# Twenty votes on five items: one judge each, and three people
VOTES = [
    ItemVotes(item=1, judges=["A"], people=["A", "A", "B"]),
    ItemVotes(item=2, judges=["tie"], people=["tie", "A", "tie"]),
    ItemVotes(item=3, judges=["B"], people=["B", "B", "B"]),
    ItemVotes(item=4, judges=["A"], people=["tie", "A", "A"]),
    ItemVotes(item=5, judges=["B"], people=["A", "B", "tie"]),
]


def test_a_pair_counts_for_every_persons_vote():
    # equal: 2 + 2 + 3 + 2 + 1 of 15; without ties: 2/3 + 0/0 + 3/3 + 2/2 + 1/2
    found = judges_with_people(VOTES)
    assert (found.with_ties.value, found.with_ties.n) == (pytest.approx(10 / 15), 15)
    assert (found.without_ties.value, found.without_ties.n) == (pytest.approx(8 / 10), 10)


def test_people_agree_among_themselves_pair_by_pair():
    # with ties 1 + 1 + 3 + 1 + 0 of 15; clear pairs 1/3, 0/0, 3/3, 1/1, 0/1
    found = people_with_people(VOTES)
    assert (found.with_ties.value, found.without_ties.value) == (pytest.approx(6 / 15), pytest.approx(5 / 8))


def test_the_interval_is_clustered_by_item():
    found = judges_with_people(VOTES).with_ties
    assert (found.interval, found.num_clusters) == (Kind.WILSON_CLUSTERED, 5)


def test_a_judge_that_contradicts_itself_when_swapped_voted_for_a_tie():
    assert (settled("A", "A"), settled("A", "B"), settled("tie", "tie")) == ("A", "tie", "tie")


def test_no_pairs_are_no_agreement():
    assert judges_with_people([ItemVotes(item=1, judges=[], people=["A"])]).with_ties.undefined == "no data"
