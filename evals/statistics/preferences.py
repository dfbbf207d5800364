"""How often a judge prefers the model, from soft preferences: 0 the baseline, 1 the model, and anything between.

AlpacaEval's raw win rate. It writes preferences as 1 (baseline) to 2 (model): take 1 off. A null preference is a call
that failed: outside the rate, counted, and worth asking again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from evals.statistics.estimate import CONFIDENCE, Estimate, scored
from evals.statistics.means import estimate_mean


@dataclass(frozen=True, kw_only=True, slots=True)
class PreferenceRate:
    """Example: preferences 1, .9, .5, None -> rate .8, discrete .8333, 2 wins, 1 tie, to ask again (3,)."""

    rate: Estimate  # mean preference; se is sd (ddof 1) / sqrt(n)
    discrete: Estimate  # each preference rounded to win, tie or loss
    wins: int
    ties: int
    losses: int
    to_ask_again: tuple[int, ...]  # places without a preference


def preference_rate(preferences: Sequence[float | None], *, confidence: float = CONFIDENCE) -> PreferenceRate:
    """All null, or none at all, leaves both rates undefined."""
    known = scored(preferences)
    for place, value in known:
        if not 0 <= value <= 1:
            raise ValueError(f"preference {place} is {value}; 0 is the baseline, 1 the model, so take 1 off 1 to 2")
    numbers = [value for _, value in known]
    rounded = [None if value is None else 0.5 if value == 0.5 else float(value > 0.5) for value in preferences]
    return PreferenceRate(
        rate=estimate_mean(preferences, confidence=confidence),
        discrete=estimate_mean(rounded, confidence=confidence),
        wins=sum(value > 0.5 for value in numbers),
        ties=sum(value == 0.5 for value in numbers),
        losses=sum(value < 0.5 for value in numbers),
        to_ask_again=tuple(place for place, value in enumerate(preferences) if value is None),
    )
