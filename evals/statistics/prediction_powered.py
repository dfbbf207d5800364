"""A rate by people's measure, from few labels by people and many by a judge.

PPI++ (Angelopoulos, Duchi, Zrnic, arXiv 2311.01453): mean(Y) + lambda * (mean judge on all others - mean judge on the
labelled). Lambda 0 ignores the judge, 1 trusts its differences; tuned, it is the one of least variance, so the interval
is about as narrow as the labels' alone or narrower, however bad the judge. Labelled items are a random sample of the
same kind.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evals.statistics.estimate import CONFIDENCE, Estimate, around, finite, unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictionPowered:
    """The corrected rate beside the two raw ones."""

    estimate: Estimate  # normal interval; n counts labelled items
    trust: float | None  # lambda
    labels_only: Estimate  # people's labels alone
    judge_only: float | None  # the judge's mean over all items: biased as the judge is
    num_labelled: int
    num_unlabelled: int


def prediction_powered_mean(
    labels: Sequence[float],
    judged: Sequence[float],
    judged_unlabelled: Sequence[float],
    *,
    trust: float | None = None,
    confidence: float = CONFIDENCE,
) -> PredictionPowered:
    """`labels` and `judged` are the same items in the same order; `trust` None tunes lambda, within [0, 1].

    Undefined with fewer than two labelled or two unlabelled items.
    """
    if len(labels) != len(judged):
        raise ValueError(f"{len(labels)} labels, {len(judged)} judgements of them; send one of each per item")
    y, f = finite(labels, what="label"), finite(judged, what="judgement")
    g = finite(judged_unlabelled, what="judgement of an unlabelled item")
    n, m = len(y), len(g)
    if min(n, m) < 2:
        nothing = unknown(f"{n} labelled and {m} unlabelled items; two of each are needed", n=n, confidence=confidence)
        return PredictionPowered(
            estimate=nothing, trust=None, labels_only=nothing, judge_only=None, num_labelled=n, num_unlabelled=m
        )
    weight = _tuned(y, f, g) if trust is None else trust
    value = float(weight * g.mean() + (y - weight * f).mean())
    se = math.sqrt(float((weight * g).var()) / m + float((y - weight * f).var()) / n)
    return PredictionPowered(
        estimate=around(value, se, n=n, confidence=confidence),
        trust=weight,
        labels_only=around(float(y.mean()), math.sqrt(float(y.var()) / n), n=n, confidence=confidence),
        judge_only=float(np.concatenate([f, g]).mean()),
        num_labelled=n,
        num_unlabelled=m,
    )


def _tuned(y: np.ndarray, f: np.ndarray, g: np.ndarray) -> float:
    """cov(Y, judge) / ((1 + n/N) var(judge)), within [0, 1]; a judge that never varies has no say."""
    spread = float(np.concatenate([f, g]).var(ddof=1))
    if spread == 0:
        return 0.0
    together = float(((y - y.mean()) * (f - f.mean())).mean())
    return min(1.0, max(0.0, together / ((1 + len(y) / len(g)) * spread)))


def rogan_gladen(judged: float, *, sensitivity: float, specificity: float) -> float | None:
    """The true rate behind a judge's rate: (q + specificity - 1) / (sensitivity + specificity - 1), within [0, 1].

    None for a judge that is no better than chance. Example: q .5, sensitivity .9, specificity .8 -> .428571
    """
    better_than_chance = sensitivity + specificity - 1
    if better_than_chance <= 0:
        return None
    return min(1.0, max(0.0, (judged + specificity - 1) / better_than_chance))
