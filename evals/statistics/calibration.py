"""Whether a judge that says 80 % is right 8 times in 10: reliability bins, expected calibration error, Brier score.

Naeini et al. (2015): ECE = sum over bins of n_bin / n * |mean outcome - mean prediction|, bins of equal width, the last
one closed. It depends on the number of bins and is above 0 for a perfect judge with few data: show both beside it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from evals.statistics.estimate import CONFIDENCE, Estimate
from evals.statistics.means import estimate_mean
from evals.statistics.proportions import Share, wilson

NUM_BINS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Bin:
    """Predictions in [low, high), the last one with 1; empty bins have no mean and no share."""

    low: float
    high: float
    predicted: float | None  # mean prediction
    happened: Share  # share of outcomes that are true, with Wilson's interval


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """Example: 8 predictions in 5 bins -> ece .1875, brier .155625 (see the tests)."""

    bins: tuple[Bin, ...]
    ece: float | None  # None without data
    brier: Estimate  # mean of (prediction - outcome)^2: 0 is perfect, .25 is a coin


def calibration(
    predictions: Sequence[float],
    outcomes: Sequence[bool],
    *,
    num_bins: int = NUM_BINS,
    confidence: float = CONFIDENCE,
) -> Calibration:
    """Predictions are probabilities of the outcome."""
    check(predictions, outcomes)
    members: list[list[int]] = [[] for _ in range(num_bins)]
    for place, prediction in enumerate(predictions):
        members[min(int(prediction * num_bins), num_bins - 1)].append(place)
    bins = tuple(
        Bin(
            low=index / num_bins,
            high=(index + 1) / num_bins,
            predicted=math.fsum(predictions[place] for place in places) / len(places) if places else None,
            happened=wilson(sum(map(bool, (outcomes[place] for place in places))), len(places), confidence=confidence),
        )
        for index, places in enumerate(members)
    )
    gaps = [
        one.happened.n * abs(one.happened.share - one.predicted)
        for one in bins
        if one.happened.share is not None and one.predicted is not None
    ]
    squares = [(prediction - bool(outcome)) ** 2 for prediction, outcome in zip(predictions, outcomes, strict=True)]
    return Calibration(
        bins=bins,
        ece=math.fsum(gaps) / len(predictions) if predictions else None,
        brier=estimate_mean(squares, confidence=confidence),
    )


def check(predictions: Sequence[float], outcomes: Sequence[bool]) -> None:
    """Raises ValueError for what is no probability, by its place, and for unequal lengths."""
    if len(predictions) != len(outcomes):
        raise ValueError(f"{len(predictions)} predictions, {len(outcomes)} outcomes; send one of each")
    for place, prediction in enumerate(predictions):
        if not 0 <= prediction <= 1:
            raise ValueError(f"prediction {place} is {prediction}; a probability lies in [0, 1]")
