"""A judge against people: agreement beyond chance, whether its marks mean what they say, and the rate by their measure.

The corrected rate is prediction-powered: few labels of people and the judge's marks on everything (see
`evals.statistics.prediction_powered`). It stands beside the raw one, never in its place.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from evals.judging.anchors import side
from evals.statistics.agreement import Agreement, cohen_kappa
from evals.statistics.calibration import Calibration, calibration
from evals.statistics.prediction_powered import PredictionPowered, prediction_powered_mean

GOOD = 0.5  # marks and labels from here on say that the answer is good
NUM_BINS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class GoldRecord:
    """One judge on the answers that people labelled."""

    agreement: Agreement  # good or not, Cohen's kappa
    calibration: Calibration  # the mark as a probability that people call the answer good
    corrected: PredictionPowered  # the mean by people's measure

    @property
    def n(self) -> int:
        return self.agreement.n


def is_good(value: float) -> bool:
    return value >= GOOD


def gold_record(
    labels: Sequence[float],
    judged: Sequence[float],
    judged_unlabelled: Sequence[float],
    *,
    anchors: Sequence[tuple[float, float]] = (),
    is_pairwise: bool = False,
) -> GoldRecord:
    """`labels` and `judged` are the same items in the same order, in [0, 1]; of a pair, 1 is left and .5 is neither.

    `anchors` are (label, judged) of chosen items: they say how far to believe the judge, and nothing about the rate,
    since they are no sample of what it judges. Pairs on which people see no winner calibrate nothing.
    """
    both = [*zip(judged, labels, strict=True), *((mark, label) for label, mark in anchors)]
    says = side if is_pairwise else is_good
    settled = [(mark, label) for mark, label in both if not is_pairwise or label != 0.5]
    return GoldRecord(
        agreement=cohen_kappa([says(mark) for mark, _ in both], [says(label) for _, label in both]),
        calibration=calibration(
            [mark for mark, _ in settled], [is_good(label) for _, label in settled], num_bins=NUM_BINS
        ),
        corrected=prediction_powered_mean(labels, judged, judged_unlabelled),
    )
