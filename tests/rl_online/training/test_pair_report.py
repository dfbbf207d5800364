import math

import pytest

from rl_online.training.pair_report import ScoredPair, length_slope, report_pairs


def pair(confidence, *, is_right=True, chosen_length=3, rejected_length=3, person=None):
    """One whose higher score claims `confidence`."""
    gap = math.log(confidence / (1 - confidence))
    chosen, rejected = (gap, 0.0) if is_right else (0.0, gap)
    return ScoredPair(
        chosen=chosen,
        rejected=rejected,
        chosen_length=chosen_length,
        rejected_length=rejected_length,
        person=person or str(confidence),
    )


def test_calibration_on_four_pairs():
    """Bins .1 wide: .55 right, .65 wrong, and .92 with .98, both right: (.45 + .65 + 2 * .05) / 4 = .3."""
    report = report_pairs([pair(0.55), pair(0.65, is_right=False), pair(0.92), pair(0.98)])
    assert report.ece == pytest.approx(0.3)
    assert [one.accuracy.n for one in report.bins] == [1, 1, 0, 0, 2]
    assert [one.confidence for one in report.bins] == [
        pytest.approx(0.55), pytest.approx(0.65), None, None, pytest.approx(0.95)
    ]  # fmt: skip
    assert [(round(one.low, 1), round(one.high, 1)) for one in report.bins][::4] == [(0.5, 0.6), (0.9, 1.0)]


def test_accuracy_has_wilsons_interval():
    """8 of 10: .49016 to .94332, a bit wider for people being clusters, of one pair each."""
    report = report_pairs([pair(0.6 + 0.01 * n, is_right=n < 8) for n in range(10)])
    assert (report.accuracy.share, report.accuracy.n) == (0.8, 10)
    assert report.accuracy.low == pytest.approx(0.49016, abs=0.02)
    assert report.accuracy.high == pytest.approx(0.94332, abs=0.02)


def test_pairs_of_one_person_count_for_less():
    alone, together = (
        report_pairs([pair(0.6 + 0.01 * n, is_right=n < 8, person=person and f"{n < 8}") for n in range(10)]).accuracy
        for person in (None, "shared")
    )
    assert together.share == alone.share == 0.8
    assert together.low < alone.low


def test_equal_scores_are_wrong():
    same = ScoredPair(chosen=1.0, rejected=1.0, chosen_length=1, rejected_length=1, person="a")
    report = report_pairs([same])
    assert report.accuracy.share == 0 and report.bins[0].confidence == 0.5


def test_a_slope_on_length_by_hand():
    """Differences in length 2, -1, 1 and in score 2, 0, 1: slope (4 + 0 + 1) / 6 = 5/6, residuals 1/3, 5/6, 1/6."""
    pairs = [
        ScoredPair(chosen=score, rejected=0.0, chosen_length=3 + length, rejected_length=3, person="a")
        for length, score in ((2, 2.0), (-1, 0.0), (1, 1.0))
    ]
    slope, low, high = length_slope(pairs)
    error = math.sqrt((2 / 3) ** 2 + (5 / 6) ** 2 + (1 / 6) ** 2) / 6
    assert slope == pytest.approx(5 / 6)
    assert (low, high) == (pytest.approx(5 / 6 - 1.959964 * error), pytest.approx(5 / 6 + 1.959964 * error))


def test_answers_of_one_length_have_no_slope():
    report = report_pairs([pair(0.7), pair(0.8)])
    assert report.length_slope is None and report.shorter_wins.share is None and report.shorter_wins.n == 0


def test_one_that_counts_tokens_is_found_where_the_shorter_wins():
    pairs = [
        pair(0.6 + 0.01 * n, is_right=is_longer, chosen_length=5 if is_longer else 2)
        for n in range(6)
        for is_longer in (True, False)
    ]
    report = report_pairs(pairs)
    assert (report.shorter_wins.share, report.longer_wins.share, report.accuracy.share) == (0.0, 1.0, 0.5)
    assert report.length_slope > 0 and report.length_slope_low > 0


def test_no_pair_is_no_report():
    with pytest.raises(ValueError, match="no pair"):
        report_pairs([])
