"""Agreement of two raters on the same pairs of answers."""

import pytest

from evals.rater_agreement import agreed, agreed_among, said_by
from evals.statistics.agreement import cohen_kappa

JUDGE = [(1, "a", "b", 1.0), (2, "b", "a", 1.0), (3, "a", "b", 0.5), (4, "a", "b", 1.0), (5, "a", "b", None)]
PEOPLE = [(1, "b", "a", 0.0), (2, "a", "b", 1.0), (3, "a", "b", 0.5), (3, "a", "b", 0.0), (9, "a", "b", 1.0)]


def test_a_verdict_counts_once_for_each_of_the_other_and_sides_go_by_name():
    """On 1 both say a, on 2 they differ, on 3 one person of two agrees; only one judged 4 and 9; 5 is undecided."""
    found = agreed(said_by(JUDGE), said_by(PEOPLE))
    assert (found.with_ties.value, found.with_ties.n, found.with_ties.num_clusters) == (0.5, 4, 3)
    assert (found.without_ties.value, found.without_ties.n) == (0.5, 2)
    words = ["first", "second", "tie", "tie"], ["first", "first", "tie", "second"]
    assert found.kappa.value == pytest.approx(cohen_kappa(*words).kappa)


def test_a_kappa_has_an_interval_clustered_by_pair():
    judge = said_by((n, "a", "b", float(n % 2)) for n in range(40))
    people = said_by((n, "a", "b", float(n % 2) if n % 5 else 1.0 - n % 2) for n in range(40))
    kappa = agreed(judge, people).kappa
    assert kappa.value == pytest.approx(0.6) and kappa.low < 0.6 < kappa.high
    assert (kappa.interval, kappa.num_clusters) == ("clustered percentile bootstrap", 40)


def test_people_among_themselves_have_no_order():
    said = said_by([(1, "a", "b", 1.0), (1, "a", "b", 0.0), (2, "a", "b", 1.0), (2, "a", "b", 1.0), (3, "a", "b", 0.5)])
    found = agreed_among(said)
    assert (found.with_ties.value, found.with_ties.n) == (0.5, 2)
    turned = {item: words[::-1] for item, words in said.items()}
    assert agreed_among(turned).kappa.value == pytest.approx(found.kappa.value)
    assert found.kappa.n == 2


def test_raters_without_a_pair_in_common_have_no_agreement():
    found = agreed(said_by(JUDGE[:1]), said_by(PEOPLE[-1:]))
    assert (found.kappa.value, found.kappa.undefined) == (None, "no pair of answers was judged by both")
    assert found.with_ties.value is None


def test_two_that_always_say_the_same_one_word_have_no_kappa():
    one = said_by([(1, "a", "b", 1.0), (2, "a", "b", 1.0)])
    assert agreed(one, one).kappa.value is None and agreed(one, one).with_ties.value == 1.0
