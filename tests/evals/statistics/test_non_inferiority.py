import pytest

from evals.statistics.estimate import Kind, around, unknown
from evals.statistics.non_inferiority import Finding, non_inferior


def difference(value, half):
    return around(value, half / 1.959963984540054, n=50)


@pytest.mark.parametrize(
    ("value", "half", "margin", "finding"),
    [
        (0.01, 0.03, 0.03, Finding.NOT_WORSE),
        (0.01, 0.03, 0.01, Finding.NOT_SHOWN),
        (-0.10, 0.03, 0.05, Finding.WORSE),
        (-0.10, 0.06, 0.05, Finding.NOT_SHOWN),
        (0.05, 0.04, 0.0, Finding.NOT_WORSE),
    ],
)
def test_the_whole_interval_must_lie_above_minus_the_margin(value, half, margin, finding):
    found = non_inferior(difference(value, half), margin=margin)
    assert (found.finding, found.is_shown) == (finding, finding == Finding.NOT_WORSE)


def test_without_an_interval_nothing_is_shown():
    assert non_inferior(unknown("0 problems in common"), margin=0.1).finding == Finding.UNDEFINED


def test_the_answer_keeps_its_margin_and_its_interval():
    found = non_inferior(difference(0.0, 0.01), margin=0.02)
    assert (found.margin, found.difference.interval) == (0.02, Kind.NORMAL)


def test_a_negative_margin_is_refused():
    with pytest.raises(ValueError, match="what may be lost"):
        non_inferior(difference(0, 1), margin=-0.1)
